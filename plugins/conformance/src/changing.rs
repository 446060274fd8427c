//! What comes and goes in the lists: an entry is there while its file is. The operator has to grant `/lists` for writing.

use std::fs;
use std::path::Path;

use bulkhead_plugin::Error;

pub(crate) const TOOL: &str = "/lists/tool";
pub(crate) const PROMPT: &str = "/lists/prompt";

pub(crate) fn is_there(entry: &str) -> bool {
    Path::new(entry).exists()
}

pub(crate) fn toggle(entry: &str) -> Result<(), Error> {
    let done = if is_there(entry) { fs::remove_file(entry) } else { fs::write(entry, "") };
    done.map_err(|error| Error::new(format!("{entry} cannot be changed: {error}; is /lists granted?")))
}
