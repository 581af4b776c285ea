//! What people may do, and what follows.

mod acts;
mod approvals;
mod compensate;
mod desk;
mod guards;
mod http;
mod postgres;
mod retractions;
mod send_again;
