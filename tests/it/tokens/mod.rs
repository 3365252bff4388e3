//! Verification compared with other programs.

pub mod openssl;
pub mod oracle;
