//! A value of the file together with its place.

use crate::config::document::error::Place;

pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Place,
}
