//! The one stream type every channel talks over: bytes are counted, writes stop when the gate closes, and the address
//! that is dialled has passed the egress guard.

pub mod counted;
pub mod dial;
pub mod guard;
pub mod http1;
