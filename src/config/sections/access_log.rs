//! `[access_log]`: the destination, format and limits of the access log.

use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::files;
use crate::telemetry::access_log::{AccessLogSettings, AccessLogTarget, Format};

pub(super) fn read(table: &mut Table<'_>) -> AccessLogSettings {
    let file = table.take("file", Shape::Path);
    table.default("file", "stdout");
    let target = match file {
        None => AccessLogTarget::Stdout,
        Some(value) => match value.string() {
            None | Some("stdout") => AccessLogTarget::Stdout,
            Some("off") => AccessLogTarget::Off,
            Some(_) => value.path().map_or(AccessLogTarget::Stdout, AccessLogTarget::File),
        },
    };
    if let AccessLogTarget::File(path) = &target {
        table.accept("file", files::can_create(path));
    }
    let formats = [("json", Format::Json), ("text", Format::Text), ("combined", Format::Combined)];
    let format = table.choice("format", Format::Json, &formats);
    AccessLogSettings {
        target,
        format,
        max_field_size: table.size("max_field_size", 256, 64..=4096),
        rejections_per_second: u32::try_from(table.integer("rejections_per_second", 100, 0..=100_000))
            .unwrap_or(u32::MAX),
    }
}
