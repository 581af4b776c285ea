//! What people may do, and what follows.

mod support_works;
