//! What `settled verify` needs of the command line: the operator's word, and the try of a producer's token to decide.

use std::io::{BufRead, IsTerminal, Write};

use uuid::Uuid;

use super::{
    arguments::Verify,
    client::Client,
    exit::{Exit, Failure},
};
use crate::domain::plain::plain;

/// Shows on stderr what would be done, and asks for it unless `--yes` was given.
///
/// # Errors
/// Without a terminal to ask on, and when the answer is no.
pub fn agreed(verify: &Verify, plan: &[String]) -> Result<(), Failure> {
    let mut words = std::io::stderr().lock();
    writeln!(words, "settled verify will use:")?;
    for line in plan {
        writeln!(words, "  {}", plain(line))?;
    }
    if verify.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "nothing was done: there is no terminal to ask on; --yes agrees to what stands above",
        ));
    }
    write!(words, "go on? [y/N] ")?;
    words.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::new(Exit::Usage, "nothing was done")) }
}

/// Has a producer's token try to decide over the API; gives the status of the answer. `None` without `--url`.
///
/// # Errors
/// When the API cannot be reached or the token not be read.
pub async fn producer_decides(verify: &Verify) -> Result<Option<u16>, Failure> {
    let Some(client) = Client::of(&verify.api)? else { return Ok(None) };
    // Nobody's intent: a token that may decide would be told that there is none.
    let path = format!("/v1/intents/{}/acts/close", Uuid::now_v7());
    let body = r#"{"reason": "settled verify: this must be refused", "version": 1}"#;
    let reply = client.call("POST", &path, &[], Some(body.to_owned())).await?;
    Ok(Some(reply.status))
}
