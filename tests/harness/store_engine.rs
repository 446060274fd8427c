//! Where the hosts of a test run keep everything: `XTASK_STORE`, `sled` or `postgres`.
//!
//! Owns what a setup is given for it: one server for the test process, and a schema for each data directory. Must not
//! know what a test proves. Invariant: the host on a data directory and every command for that data directory use the
//! same store.

use std::path::{Path, PathBuf};

use bulkhead_store::postgres_server;
use parking_lot::Mutex;
use tokio::process::Command;

/// What folders of a setup begin with.
pub(crate) const FOLDER_PREFIX: &str = "bulkhead-test-";
/// In such a folder, the configuration of its store and the address that it names.
const CONFIGURATION: &str = "store.toml";
const ADDRESS: &str = "store.url";

/// Whether hosts of this run have their stores in PostgreSQL.
pub fn is_postgres() -> bool {
    match std::env::var("XTASK_STORE").as_deref() {
        Ok("postgres") => true,
        Ok("" | "sled") | Err(_) => false,
        Ok(other) => panic!("XTASK_STORE is `{other}`: use sled or postgres"),
    }
}

/// Whether a test of what only a store on a disk has is left out of this run; then it is printed why.
pub fn is_left_out(reason: &str) -> bool {
    if is_postgres() {
        eprintln!("not run with XTASK_STORE=postgres: {reason}");
    }
    is_postgres()
}

/// The section `[store]` for a setup's folder; nothing where its store is on the disk.
pub(crate) fn section(folder: &Path) -> String {
    configuration(folder).map_or_else(String::new, |file| std::fs::read_to_string(file).expect("a configuration"))
}

/// Has a command on the data directory of a setup use that setup's store, unless it names a configuration itself.
pub(crate) fn use_store_of_data(command: &mut Command) {
    let arguments: Vec<_> = command.as_std().get_args().map(PathBuf::from).collect();
    let names = |option: &str| arguments.iter().position(|argument| argument.as_os_str() == option);
    let (Some(at), None) = (names("--data"), names("--config")) else { return };
    let folder = arguments.get(at + 1).and_then(|data| data.parent());
    let is_of_setup = |folder: &&Path| {
        let name = folder.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(FOLDER_PREFIX)
    };
    // The configuration of a setup may name a store of its own.
    let names_store = |folder: &Path| {
        let written = std::fs::read_to_string(folder.join("bulkhead.toml")).unwrap_or_default();
        written.contains("[store]") && !folder.join(CONFIGURATION).exists()
    };
    if let Some(folder) = folder.filter(is_of_setup).filter(|folder| !names_store(folder))
        && let Some(file) = configuration(folder)
    {
        command.env("BULKHEAD_CONFIG", file);
    }
}

/// The file with the section, made when it is first asked for.
fn configuration(folder: &Path) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if !is_postgres() {
        return None;
    }
    let file = folder.join(CONFIGURATION);
    let _turn = ONE_AT_A_TIME.lock();
    if !file.exists() {
        let server = postgres_server::shared().expect("XTASK_STORE=postgres needs Debian's postgresql-15");
        let address = folder.join(ADDRESS);
        std::fs::write(&address, server.address()).expect("a file");
        let schema = postgres_server::new_schema();
        let section = format!("[store]\nengine = \"postgres\"\nurl_file = {address:?}\nschema = \"{schema}\"\n");
        std::fs::write(&file, section).expect("a file");
    }
    Some(file)
}
