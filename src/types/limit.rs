//! Limits that share their reason with another limit, or that reject nothing: how often they are hit needs a counter
//! of its own.

/// Defines [`Limit`] with the key of each.
macro_rules! limits {
    ($($name:ident = $key:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Limit {
            $($name,)*
        }

        impl Limit {
            pub const ALL: &'static [Limit] = &[$(Limit::$name,)*];

            /// The key in `gateway.toml`.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Limit::$name => $key,)*
                }
            }
        }
    };
}

limits! {
    ReservePercent = "limits.reserve_percent",
    RequestHeaderCount = "limits.request_header_count",
    BodySize = "limits.body_size",
    MinDownloadRate = "limits.min_download_rate",
    DiscardedBodySize = "limits.discarded_body_size",
    RequestsPerConnection = "limits.requests_per_connection",
    Http2Resets = "limits.http2_resets",
    FailedHandshakes = "limits.failed_handshakes",
    MalformedRequests = "limits.malformed_requests",
    RejectedBodies = "limits.rejected_bodies",
    RetryDelay = "limits.retry_delay",
    AcmeOrders = "acme.orders_per_hour",
    IntrospectedBadSignatures = "limits.introspected_bad_signatures",
}
