//! The migrations are compiled in; a changed one must rebuild the library.
fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
