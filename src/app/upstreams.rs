//! The upstreams of a configuration, as far as possible those that are in force already: their connections outlive a reload.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Config;
use crate::upstream::{Settings, Upstream};

#[derive(Default)]
pub(super) struct Upstreams(Mutex<Vec<Kept>>);

struct Kept {
    upstream: Arc<Upstream>,
    workers: usize,
    /// What was in its `ca_file`: the name of a file does not tell that it has changed.
    authorities: Option<Vec<u8>>,
}

impl Upstreams {
    /// In the order of the configuration.
    pub(super) fn of(&self, config: &Config) -> Result<Vec<Arc<Upstream>>, String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = config.upstreams.iter().map(|settings| keep_or_make(&kept, settings, config.workers));
        let next: Vec<Kept> = next.collect::<Result<_, _>>()?;
        let upstreams = next.iter().map(|next| next.upstream.clone()).collect();
        *kept = next;
        Ok(upstreams)
    }
}

fn keep_or_make(kept: &[Kept], settings: &Settings, workers: usize) -> Result<Kept, String> {
    let named = |fault: String| format!("upstream {}: {fault}", settings.name);
    let authorities = settings
        .ca_file
        .as_ref()
        .map(|path| fs::read(path).map_err(|error| named(format!("ca_file {}: {error}", path.display()))));
    let authorities = authorities.transpose()?;
    let same = kept
        .iter()
        .find(|kept| kept.upstream.settings == *settings && kept.workers == workers && kept.authorities == authorities);
    let upstream = match same {
        Some(same) => same.upstream.clone(),
        None => Arc::new(Upstream::new(settings.clone(), workers).map_err(named)?),
    };
    Ok(Kept { upstream, workers, authorities })
}
