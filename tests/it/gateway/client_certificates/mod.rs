//! Client certificates: the routes that need one, and what backends learn about it.

mod from_proxies;
mod headers;
mod routes;
mod streams;
