//! The same over HTTP: roles, versions, what is told to the loser, and what a person reads.
