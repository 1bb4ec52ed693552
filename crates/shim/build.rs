//! Says how `libweft.so` is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs keep pointers into it for as long as they live, so it stays when they close it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Calls between the exports of one copy stay in that copy.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweft.so");
}
