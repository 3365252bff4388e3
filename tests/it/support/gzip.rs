//! Compressed bodies, for servers that compress whatever a request accepts.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("memory is writable");
    encoder.finish().expect("memory is writable")
}
