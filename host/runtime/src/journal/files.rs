//! Files end a call's journal: what is in them, and when, is not in it.
//!
//! Owns the way of a guest to `wasi:filesystem/types`. A guest that was granted directories and reaches for none of
//! them keeps its journal. Invariant: the journal is given up before a file is reached, and while a journal is replayed
//! none is.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystem, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{self, Host as _, HostDescriptor as _};

use crate::call::Call;
use bulkhead_calls::journal::Reason;

const TYPES: &str = "wasi:filesystem/types@0.2.12";

impl Call {
    /// To be asked before anything is done with a file.
    pub(crate) fn use_files(&mut self) -> wasmtime::Result<&mut Self> {
        if let Some(journal) = &mut self.journal {
            if journal.is_replaying() {
                return Err(journal.state.diverge("it reached for a file").into());
            }
            journal.state.demote(Reason::Files);
            self.settle()?;
        }
        Ok(self)
    }

    /// The same, and it is kept that the journal was given up.
    pub(crate) async fn use_files_first(&mut self) -> wasmtime::Result<&mut Self> {
        self.use_files()?.declare().await?;
        Ok(self)
    }

    /// The files of the call. A replay finds none, and has diverged.
    fn files(&mut self) -> WasiFilesystemCtxView<'_> {
        if self.use_files().is_err()
            && let Some(journal) = &mut self.journal
        {
            std::mem::swap(&mut self.table, &mut journal.nothing);
        }
        self.filesystem()
    }
}

type Store<'a> = StoreContextMut<'a, Call>;

pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    types::add_to_linker::<Call, WasiFilesystem>(linker, Call::files)?;
    // What follows from the grants is no use of a file.
    let mut types = linker.instance(TYPES)?;
    types.resource("descriptor", ResourceType::host::<Descriptor>(), |mut store: Store<'_>, descriptor| {
        store.data_mut().filesystem().drop(Resource::new_own(descriptor))
    })?;
    types.func_wrap("filesystem-error-code", |mut store: Store<'_>, (error,)| {
        Ok((store.data_mut().filesystem().filesystem_error_code(error)?,))
    })?;
    types.func_wrap_async("[method]descriptor.get-flags", |mut store: Store<'_>, (descriptor,)| {
        Box::new(async move {
            match store.data_mut().filesystem().get_flags(descriptor).await {
                Ok(flags) => Ok((Ok(flags),)),
                Err(error) => Ok((Err(error.downcast()?),)),
            }
        })
    })?;
    types.func_wrap_async("[method]descriptor.get-type", |mut store: Store<'_>, (descriptor,)| {
        Box::new(async move {
            match store.data_mut().filesystem().get_type(descriptor).await {
                Ok(kind) => Ok((Ok(kind),)),
                Err(error) => Ok((Err(error.downcast()?),)),
            }
        })
    })
}
