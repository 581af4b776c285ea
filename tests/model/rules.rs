//! What a search runs under: the rules of the house, each of which can be taken out, and what the environment may do.

use settled::domain::intent::InDoubt;

/// Every rule is `true` in the house. A test takes one out by giving the real fold and the real judge what they would be given
/// without it; the fold and the judge themselves are never replaced.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Cancelling or closing in doubt keeps the effect.
    pub doubt_keeps_effect: bool,
    /// Absence is concluded only after the closure of the attempt and the lag.
    pub closure_and_lag: bool,
    /// Closure is the end of the lease, whenever the attempt was reaped.
    pub closure_by_lease: bool,
    /// A proof of absence goes stale.
    pub proofs_expire: bool,
    /// A proof about one attempt says nothing about another.
    pub proof_per_attempt: bool,
    /// The generation that the attempt used is asked, not today's.
    pub own_generation: bool,
    /// Found needs the key, not only the reference.
    pub found_by_key: bool,
    /// A hit on the same effect under another identity blocks absence.
    pub absent_by_effect: bool,
    /// A refusal speaks about its own attempt only.
    pub refusal_of_one_attempt: bool,
    /// A replayed failure proves nothing.
    pub stored_failure_proves_nothing: bool,
    /// (attempt, token) is the fence, not the attempt's number alone.
    pub token_in_fence: bool,
    /// No bytes leave after the lease.
    pub self_stop: bool,
    /// Nothing is sent before its claim is known to be committed.
    pub committed_claims_only: bool,
    /// The key is pinned at the first claim, whatever secret is active later.
    pub key_pinned: bool,
    /// A step of the database's clock suspends absence.
    pub clock_step_suspends: bool,
    /// After a rewind whatever is open is in doubt.
    pub rewound_is_in_doubt: bool,
    /// After a rewind an older proof says nothing about what may have been lost.
    pub rewind_ends_proofs: bool,
    /// Where the destination meant another downstream when history was lost, or since, absence says nothing about what was lost.
    pub lost_at_one_downstream: bool,
    /// After a rewind nothing is proven before lease and lag have gone by since.
    pub rewind_waits: bool,
    /// After a rewind new requests are asked about before they are sent.
    pub new_requests_ask_first: bool,
    /// After a rewind what had ended without effect is marked.
    pub rewound_end_is_marked: bool,
    /// All requests of an intent are told how it ended.
    pub all_requests_told: bool,
    /// Answers count in the order of their questions, not of their writing.
    pub by_question_time: bool,
}

/// The rules of the house.
pub const HOUSE: Rules = Rules {
    doubt_keeps_effect: true,
    closure_and_lag: true,
    closure_by_lease: true,
    proofs_expire: true,
    proof_per_attempt: true,
    own_generation: true,
    found_by_key: true,
    absent_by_effect: true,
    refusal_of_one_attempt: true,
    stored_failure_proves_nothing: true,
    token_in_fence: true,
    self_stop: true,
    committed_claims_only: true,
    key_pinned: true,
    clock_step_suspends: true,
    rewound_is_in_doubt: true,
    rewind_ends_proofs: true,
    lost_at_one_downstream: true,
    rewind_waits: true,
    new_requests_ask_first: true,
    rewound_end_is_marked: true,
    all_requests_told: true,
    by_question_time: true,
};

/// What may happen, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Environment {
    /// Runs that ask for the same effect: 1 to 3.
    pub requests: usize,
    /// A request for another effect under the same reference.
    pub other_effect: bool,
    /// Attempts of one intent, replays included.
    pub attempts: usize,
    /// Acts of people in one history.
    pub acts: u8,
    /// Questions in one history.
    pub questions: u8,
    /// Questions under way at one time.
    pub reconcilers: usize,
    /// The policy of the destination.
    pub in_doubt: InDoubt,
    /// A person must approve first.
    pub approval: bool,
    /// The deadline may pass.
    pub deadline: bool,
    /// The downstream keeps keys: one effect per key, and doubt is replayed.
    pub keeps_keys: bool,
    /// It may replay a stored failure.
    pub stores_failures: bool,
    /// Its items show our key.
    pub shows_keys: bool,
    /// It refuses a reference that it has.
    pub refuses_duplicates: bool,
    /// An effect is visible only later.
    pub slow_index: bool,
    /// It sends receipts by itself.
    pub sightings: bool,
    /// Workers die before anything was written. To the ledger that is the same as never going on; so only the search for an end
    /// needs it.
    pub deaths: bool,
    /// The reply to a claim may be lost.
    pub lost_claims: bool,
    /// The destination is pointed at another provider, once.
    pub provider_changes: bool,
    /// The active secret is changed, once.
    pub secret_rotates: bool,
    /// How often the database loses its newest history.
    pub rewinds: u8,
    /// The database's clock jumps ahead, once.
    pub clock_jumps: bool,
    /// The destination is parked for long between a proof and the next claim, and meanwhile its queue is drained.
    pub parks: bool,
    /// Bytes arrive after the declared lag. No rule stands against it.
    pub lag_is_wrong: bool,
    /// A process is frozen between its last check and its last write for longer than the lag. No rule stands against it.
    pub frozen_at_the_write: bool,
    /// A second effect that a person's false statement caused is no fault of the protocol.
    pub people_err: bool,
}

/// One request, two attempts, people, a reply that may be lost; the declared lag holds.
pub const ORDINARY: Environment = Environment {
    requests: 1,
    other_effect: false,
    attempts: 2,
    acts: 1,
    questions: 2,
    reconcilers: 1,
    in_doubt: InDoubt::Ask,
    approval: false,
    deadline: false,
    keeps_keys: false,
    stores_failures: false,
    shows_keys: true,
    refuses_duplicates: true,
    slow_index: false,
    sightings: false,
    deaths: false,
    lost_claims: false,
    provider_changes: false,
    secret_rotates: false,
    rewinds: 0,
    clock_jumps: false,
    parks: false,
    lag_is_wrong: false,
    frozen_at_the_write: false,
    people_err: true,
};
