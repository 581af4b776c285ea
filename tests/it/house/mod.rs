//! What the house keeps: its layers and style, fakes, examples.

mod cases_list;
mod cluster;
mod deploy;
mod docs;
mod fakes;
mod layering;
mod legal_moves;
mod lists;
mod papers;
mod style;
