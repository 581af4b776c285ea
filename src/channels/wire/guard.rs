//! Which addresses may be dialled. (being written)
