//! What people may do, and what follows.

mod compensate;
mod support_works;
