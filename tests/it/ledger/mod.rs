//! What the ledger decides.

mod admission;
mod bulk;
mod canonical;
mod cases;
mod chance;
mod destinations;
mod guards;
mod plain;
mod producers;
mod races;
mod schema;
mod validation;
mod verdicts;
mod world;
