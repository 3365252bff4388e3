#![no_main]

#[path = "../authorization.rs"]
mod authorization;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    authorization::authorize(bytes);
});
