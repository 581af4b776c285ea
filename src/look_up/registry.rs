//! Which look-up asks a destination. One line for each adapter.

use std::sync::Arc;

use super::{LookUp, command::Command, http::Http};
use crate::config::{
    BuildError,
    destination::{Destination, LookUpKind},
};

/// Builds the look-up of a destination; `None` where it cannot be asked.
///
/// # Errors
/// [`BuildError`] names the setting and the rule.
pub fn build(destination: &Destination) -> Result<Option<Arc<dyn LookUp>>, BuildError> {
    let Some(look_up) = &destination.look_up else { return Ok(None) };
    Ok(Some(match look_up.kind {
        LookUpKind::Http => Arc::new(Http::build(destination)?),
        LookUpKind::Command => Arc::new(Command::build(destination)?),
        LookUpKind::Imap => Arc::new(super::imap::Imap::build(destination)?),
    }))
}
