//! What the ledger decides.

mod admission;
mod canonical;
mod cases;
mod destinations;
mod guards;
mod producers;
mod races;
mod schema;
mod validation;
mod verdicts;
mod world;
