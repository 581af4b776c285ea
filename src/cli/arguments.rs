//! What may be written on the command line.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A transactional outbox and reconciler: a lost reply is unknown, never failed.
#[derive(Debug, Parser)]
#[command(name = "settled", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// Configuration file [default: ./settled.toml, then /etc/settled/settled.toml]
    #[arg(long, global = true, help_heading = "Everywhere", env = "SETTLED_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Postgres URL, instead of the one in the configuration
    #[arg(
        long,
        global = true,
        help_heading = "Everywhere",
        env = "SETTLED_DATABASE_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub database_url: Option<String>,
    /// Machine-readable output: one JSON value, or one object a line for lists
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: send, ask, serve the API
    Serve {
        /// Migrate the database first
        #[arg(long)]
        migrate: bool,
    },
    /// Bring the database to this version; forward only, harmless when repeated or run by several at once
    Migrate,
    /// Ask for an effect
    Enqueue(Box<Enqueue>),
    /// The whole story of one intent, as a timeline
    Show {
        /// Intent id, or a reference
        intent: String,
        /// Only this tenant, where a reference is given
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Intents, newest first
    List(List),
    /// Cancel an intent that was never attempted
    Cancel {
        /// Intent id
        intent: uuid::Uuid,
        /// Why
        #[arg(long)]
        reason: String,
        /// The version that was seen; a person's token needs it
        #[arg(long)]
        version: Option<i64>,
        /// Where the API is, when not by database
        #[command(flatten)]
        api: Api,
    },
    /// The configured downstreams
    #[command(subcommand)]
    Destinations(Destinations),
    /// What waits for a person: read, claim, decide (over the API, with the person's own token)
    #[command(subcommand)]
    Escalations(super::escalations::Escalations),
    /// Which database roles may enqueue
    #[command(subcommand)]
    Producers(Producers),
    /// Tokens of API callers
    #[command(subcommand)]
    Tokens(Tokens),
    /// Stop sending: all, to a destination, or for a tenant
    Pause {
        /// What is paused
        #[command(flatten)]
        scope: Scope,
        /// Why; shown everywhere
        #[arg(long)]
        reason: String,
    },
    /// Send again what `pause` stopped
    Resume {
        /// What is resumed
        #[command(flatten)]
        scope: Scope,
    },
    /// After the database lost history: what is asked about first, and until when
    #[command(subcommand)]
    Quarantine(Quarantine),
    /// Check the configuration, offline
    Check,
    /// Look at this installation, reading only: clocks, durability, locks, roles, doubt, secrets, controls
    Doctor,
    /// Prove the guarantees here: try the ledger, send canaries to destinations, lose a reply on purpose
    Verify(Verify),
    /// Write the completions of a shell to stdout
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the description of the HTTP API, OpenAPI 3.1
    Openapi,
    /// Write the manual pages into a directory
    Man {
        /// Is made where it is missing; its parent must exist
        directory: PathBuf,
    },
    /// Measure this machine: deliveries, latency, CPU, memory, as ratios to bare yardsticks
    #[cfg(feature = "demo")]
    Bench {
        /// Intents in the backlog
        #[arg(long, default_value_t = 20_000)]
        intents: u32,
        /// Sends at the same time, one drain each
        #[arg(long, value_delimiter = ',', default_value = "1,16,64,256", value_parser = clap::value_parser!(u32).range(1..=4096))]
        concurrency: Vec<u32>,
        /// Intents a second in the latency part
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rate: u32,
        /// Seconds of each latency part, and of --backlog
        #[arg(long, default_value_t = 20)]
        seconds: u32,
        /// Only this: shares of the sends that go wrong, such as late=0.002,lost=0.001 (late, cut, lost, refused, failed)
        #[arg(long, group = "part")]
        fault: Option<String>,
        /// Only this: the rates among so many settled rows, beside those of the empty ledger
        #[arg(long, group = "part")]
        rows: Option<u32>,
        /// Only this: half of the sends fail, and twenty callers ask for each effect
        #[arg(long, group = "part")]
        storm: bool,
        /// Only this: memory of the daemon while so many rows are due
        #[arg(long, group = "part")]
        backlog: Option<u32>,
    },
    /// Play the guided demonstration with private Postgres and fake downstreams
    #[cfg(feature = "demo")]
    #[command(args_conflicts_with_subcommands = true)]
    Demo(Demo),
}

/// `settled verify`.
#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = true, args = ["destinations", "all", "ledger_only"])]
pub struct Verify {
    /// Send canaries to these destinations
    #[arg(long = "destination", value_name = "NAME", num_args = 1.., conflicts_with_all = ["all", "ledger_only"])]
    pub destinations: Vec<String>,
    /// To all that are configured
    #[arg(long, conflicts_with = "ledger_only")]
    pub all: bool,
    /// Try the ledger only; nothing is sent
    #[arg(long)]
    pub ledger_only: bool,
    /// How long each canary is waited for; should be longer than the longest lag
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = humantime::parse_duration)]
    pub wait: std::time::Duration,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
    /// Where the API is, and a producer's token that will try to decide there
    #[command(flatten)]
    pub api: Api,
}

/// `settled enqueue`.
#[derive(Debug, Args)]
pub struct Enqueue {
    /// Name of the destination
    #[arg(required_unless_present = "bulk", conflicts_with = "bulk")]
    pub destination: Option<String>,
    /// Business reference, such as INV-2291
    #[arg(required_unless_present = "bulk")]
    pub reference: Option<String>,
    /// JSON text, `@FILE`, or `-` for standard input
    #[arg(long, short, required_unless_present = "bulk", conflicts_with = "bulk")]
    pub payload: Option<String>,
    /// Many calls: a file with one JSON object a line, members as of POST /v1/intents and idempotency_key; `-` for standard
    /// input. All or nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run_id", "step", "idempotency_key", "due_at", "deadline", "instructed_by", "traceparent"])]
    pub bulk: Option<String>,
    /// With --bulk: each line for itself; the exit code is that of the first refused line. A line that is
    /// no call still refuses the whole file
    #[arg(long, requires = "bulk")]
    pub per_item: bool,
    /// Run of the agent or program; with --step the identity of the call
    #[arg(long, requires = "step")]
    pub run_id: Option<String>,
    /// Position in that run
    #[arg(long, requires = "run_id")]
    pub step: Option<i64>,
    /// Names one effect of several in a step
    #[arg(long, default_value = "")]
    pub slot: String,
    /// Where there is no run: a key of the caller's own choice
    #[arg(long, conflicts_with = "run_id")]
    pub idempotency_key: Option<String>,
    /// 2, 3, … for a wanted repeat
    #[arg(long, default_value_t = 1)]
    pub occurrence: i32,
    /// Not before (RFC 3339)
    #[arg(long)]
    pub due_at: Option<DateTime<Utc>>,
    /// No attempt after (RFC 3339)
    #[arg(long)]
    pub deadline: Option<DateTime<Utc>>,
    /// Who instructed it, JSON
    #[arg(long)]
    pub instructed_by: Option<String>,
    /// W3C trace context
    #[arg(long)]
    pub traceparent: Option<String>,
    /// Tenant, where the role has more than one or owns the ledger (database only)
    #[arg(long)]
    pub tenant: Option<String>,
    /// Where the API is, when not by database
    #[command(flatten)]
    pub api: Api,
}

/// Where the HTTP API is and who calls it.
#[derive(Debug, Args, Clone)]
pub struct Api {
    /// Base URL of the API, such as http://127.0.0.1:7411; without it the database is used
    #[arg(long, alias = "api", env = "SETTLED_URL", value_name = "URL")]
    pub url: Option<String>,
    /// File that holds the caller's token
    #[arg(long, env = "SETTLED_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// `settled list`.
#[derive(Debug, Args)]
pub struct List {
    /// Only this reference
    #[arg(long)]
    pub reference: Option<String>,
    /// Only this state
    #[arg(long, value_enum)]
    pub state: Option<StateName>,
    /// Only this destination
    #[arg(long)]
    pub destination: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Calls whose intent ended without effect, instead of intents
    #[arg(long, conflicts_with = "state")]
    pub unserved: bool,
    /// Older than this id: the last one of the page before
    #[arg(long)]
    pub before: Option<uuid::Uuid>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
    pub limit: i64,
}

/// A state by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum StateName {
    /// Waits for approval
    Held,
    /// Waits to be sent
    Pending,
    /// An attempt is open
    InFlight,
    /// The effect happened
    Sent,
    /// It did not, and will not by itself
    Failed,
    /// It may have happened
    Unknown,
    /// Withdrawn before it happened
    Cancelled,
    /// Closed without knowing
    Abandoned,
}

impl StateName {
    /// The word in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Pending => "pending",
            Self::InFlight => "in_flight",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }
}

/// `settled destinations …`.
#[derive(Debug, Subcommand)]
pub enum Destinations {
    /// What is published, and in words what happens in doubt
    List,
    /// Ask a known and an impossible question; one that fails can only say Found until it passes
    Test {
        /// Name
        destination: String,
        /// When it passes, let a parked destination be sent to again
        #[arg(long)]
        unpark: bool,
    },
    /// Ask about one intent, without touching it
    Ask {
        /// Name
        destination: String,
        /// Intent that is asked about
        intent: uuid::Uuid,
    },
    /// Forget the pause that a destination asked for (Retry-After) and the pace that was learned of it; an
    /// intent that was answered 429 itself keeps its own time
    Release {
        /// Name
        destination: String,
    },
    /// Publish the configured destinations to the database
    Publish,
}

/// `settled quarantine …`.
#[derive(Debug, Subcommand)]
pub enum Quarantine {
    /// Rewinds that are not settled
    Show,
    /// Stop asking first for what is asked for from now on, and let a restored copy send; what is in doubt stays so
    Lift {
        /// Why; kept in the journal
        #[arg(long)]
        reason: String,
    },
}

/// `settled producers …`.
#[derive(Debug, Subcommand)]
pub enum Producers {
    /// A database role may enqueue for a tenant to destinations
    Grant {
        /// Database role
        role: String,
        /// Tenant
        #[arg(long)]
        tenant: String,
        /// Destinations the tenant may use
        #[arg(long = "destination", required = true)]
        destinations: Vec<String>,
    },
    /// Take it back
    Revoke {
        /// Database role
        role: String,
        /// Tenant
        #[arg(long)]
        tenant: String,
        /// Only these destinations; without any, the role itself
        #[arg(long = "destination")]
        destinations: Vec<String>,
    },
    /// Roles, tenants and destinations
    List,
}

/// `settled tokens …`.
#[derive(Debug, Subcommand)]
pub enum Tokens {
    /// Make a token; it is shown once
    Create {
        /// What it is for
        #[arg(value_enum)]
        kind: KindName,
        /// Whose it is
        principal: String,
        /// Tenant; a producer needs one
        #[arg(long)]
        tenant: Option<String>,
        /// Valid so long, such as 90d
        #[arg(long, value_parser = humantime::parse_duration)]
        expires_in: Option<std::time::Duration>,
    },
    /// Make it useless
    Revoke {
        /// Its id: the third part of the token
        id: String,
    },
    /// Who has one
    List,
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum KindName {
    /// Asks for effects; can never decide
    Producer,
    /// Decides
    Responder,
    /// Everything
    Admin,
    /// Reads /metrics
    Metrics,
    /// Reports what became of what a destination took; the principal is the destination's name
    Downstream,
}

/// What is paused or resumed: exactly one.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Scope {
    /// Everything
    #[arg(long)]
    pub all: bool,
    /// One destination
    #[arg(long, value_name = "NAME")]
    pub destination: Option<String>,
    /// One tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
}

/// `settled demo`.
#[cfg(feature = "demo")]
#[derive(Debug, Args)]
pub struct Demo {
    /// End after the scenes instead of running on
    #[arg(long)]
    pub once: bool,
    /// Keep the private Postgres cluster
    #[arg(long)]
    pub keep: bool,
    /// Hidden helpers
    #[command(subcommand)]
    pub tool: Option<DemoTool>,
}

/// Helpers of `make`.
#[cfg(feature = "demo")]
#[derive(Debug, Subcommand)]
pub enum DemoTool {
    /// Run a command with a private Postgres that ends with it
    #[command(hide = true)]
    WithPostgres {
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}
