//! A stream that counts the bytes it hands to the kernel and refuses to write once the gate is closed. (being written)
