//! `bulkhead store`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_console::table::fields;
use bulkhead_control::commands::{StoreBackup, StoreCheck, StoreExport, StoreRebuild, StoreRekey};
use clap::Subcommand;

use super::operate::{Absent, OperateArguments, execute, show, show_fields};

/// Works with a running host (over DATA/control.sock) and without.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything and say what is wrong
    Check(OperateArguments),
    /// Write everything that can be read to a new file, as JSON lines
    Export {
        /// The file; it must not exist yet
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Make a new database of an export, or of what can be read of the present one, which is kept beside it
    #[command(
        after_long_help = "With a store in PostgreSQL, --from fills an empty schema. Between two engines, a store moves by \
        `bulkhead store export` with the configuration of one and `bulkhead store rebuild --from` with that of the other."
    )]
    Rebuild {
        /// The export to restore (needs the host stopped)
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Seal the tenants' keys again, with the first of the keys in [encryption]; older keys are not needed afterwards
    #[command(
        after_long_help = "To change the operator's key: put the new one in front of the old one, start the host again, \
        `bulkhead store rekey`, take the old one away. What is stored is not written again: each tenant's data has a key of its \
        own, and only that is sealed with the operator's. `bulkhead store rebuild` takes the old seals out of the files."
    )]
    Rekey(OperateArguments),
    /// Copy the store and the components of plugins into a new data directory, also while they are in use
    Backup {
        /// The directory; it must be empty or not exist yet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

pub(crate) async fn run(command: StoreCommand) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Check(operate) => {
            let view = execute(&operate, StoreCheck {}, Absent::Refuse).await?;
            let code = show(&operate, &view, |_| fields(&view))?;
            // A check that found something has done its work, but scripts must see it.
            Ok(if view.sound { code } else { ExitCode::from(EXIT_FAILED) })
        }
        StoreCommand::Export { file, operate } => show_fields(&operate, StoreExport { file: absolute(&file)? }).await,
        StoreCommand::Rebuild { from, operate } => {
            let from = from.as_deref().map(absolute).transpose()?;
            // An export is enough to make a store where there is none.
            let absent = if from.is_some() { Absent::Create } else { Absent::Refuse };
            let view = execute(&operate, StoreRebuild { from }, absent).await?;
            show(&operate, &view, |_| fields(&view))
        }
        StoreCommand::Rekey(operate) => show_fields(&operate, StoreRekey {}).await,
        StoreCommand::Backup { directory, operate } => {
            show_fields(&operate, StoreBackup { directory: absolute(&directory)? }).await
        }
    }
}

/// Paths go to another process: they must not depend on where this one stands.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))
}
