//! Resolve once, check the address that is about to be dialled, dial it. (being written)
