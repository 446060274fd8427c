//! The functions of `wasi:filesystem` that make something larger, with a count in front of them; those by which a guest
//! looks for what it was granted; and the listing of a directory, which leaves out names that no guest can be told.
//!
//! Everything else, and what happens behind the count, is wasmtime's. A descriptor belongs to the directory that it was
//! opened from. Invariant: a call without quotas pays one look-up in an empty table.

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi::cli::WasiCliView as _;
use wasmtime_wasi::filesystem::{Descriptor, Dir, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DirectoryEntry, ErrorCode, HostDescriptor as _, HostDirectoryEntryStream as _, NewTimestamp,
    OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynOutputStream, FsResult, ReaddirIterator};

use super::counted::Counted;
use super::opening::OpenRequest;
use super::quota::{Addition, DirectoryFull, DirectoryQuota};
use crate::call::Call;

const ENVIRONMENT: &str = "wasi:cli/environment@0.2.12";
const TYPES: &str = "wasi:filesystem/types@0.2.12";
const PREOPENS: &str = "wasi:filesystem/preopens@0.2.12";

type Told<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

/// The result as a guest sees it.
fn told<T>(result: FsResult<T>) -> Told<T> {
    match result {
        Ok(value) => Ok((Ok(value),)),
        Err(error) => Ok((Err(error.downcast()?),)),
    }
}

impl From<DirectoryFull> for ErrorCode {
    fn from(_: DirectoryFull) -> Self {
        Self::InsufficientSpace
    }
}

type Store<'a> = StoreContextMut<'a, Call>;

/// Puts the counts in front of what the linker has.
pub(crate) fn guard(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(ENVIRONMENT)?.func_wrap("get-environment", |mut store: StoreContextMut<'_, Call>, ()| {
        let call = store.data_mut();
        call.denials.looked_for_variables();
        Ok((call.cli().get_environment()?,))
    })?;
    linker.instance(PREOPENS)?.func_wrap("get-directories", |mut store, ()| get_directories(store.data_mut()))?;
    let mut types = linker.instance(TYPES)?;
    types.func_wrap_async("[method]descriptor.write", |mut store: Store<'_>, (fd, bytes, offset)| {
        Box::new(async move { told(write(store.data_mut().use_files_first().await?, fd, bytes, offset).await) })
    })?;
    types.func_wrap("[method]descriptor.write-via-stream", |mut store: Store<'_>, (fd, offset)| {
        told(stream(store.data_mut().use_files()?, fd, Some(offset)))
    })?;
    types.func_wrap("[method]descriptor.append-via-stream", |mut store: Store<'_>, (fd,)| {
        told(stream(store.data_mut().use_files()?, fd, None))
    })?;
    types.func_wrap_async("[method]descriptor.set-size", |mut store: Store<'_>, (fd, size)| {
        Box::new(async move { told(set_size(store.data_mut().use_files_first().await?, fd, size).await) })
    })?;
    types.func_wrap_async("[method]descriptor.open-at", |mut store: Store<'_>, (fd, at, path, open, flags)| {
        Box::new(
            async move { told(open_at(store.data_mut().use_files_first().await?, fd, at, path, open, flags).await) },
        )
    })?;
    types.func_wrap_async(
        "[method]descriptor.set-times-at",
        |mut store: Store<'_>, (fd, at, path, accessed, modified)| {
            Box::new(async move {
                told(set_times_at(store.data_mut().use_files_first().await?, fd, at, path, accessed, modified).await)
            })
        },
    )?;
    types.func_wrap_async("[method]descriptor.create-directory-at", |mut store: Store<'_>, (fd, path)| {
        Box::new(async move { told(create_directory_at(store.data_mut().use_files_first().await?, fd, path).await) })
    })?;
    types.func_wrap_async("[method]descriptor.symlink-at", |mut store: Store<'_>, (fd, target, path)| {
        Box::new(async move { told(symlink_at(store.data_mut().use_files_first().await?, fd, target, path).await) })
    })?;
    types.func_wrap_async(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: Store<'_>, (entries,)| {
            Box::new(
                async move { told(read_directory_entry(store.data_mut().use_files_first().await?, &entries).await) },
            )
        },
    )?;
    types.func_wrap_async("[method]descriptor.link-at", |mut store: Store<'_>, (fd, at, from, into, path)| {
        Box::new(
            async move { told(link_at(store.data_mut().use_files_first().await?, fd, at, from, into, path).await) },
        )
    })?;
    types.func_wrap_async("[method]descriptor.rename-at", |mut store: Store<'_>, (fd, from, into, path)| {
        Box::new(async move { told(rename_at(store.data_mut().use_files_first().await?, fd, from, into, path).await) })
    })?;
    types.func_wrap_async("[method]descriptor.unlink-file-at", |mut store: Store<'_>, (fd, path)| {
        Box::new(async move {
            let call = store.data_mut().use_files_first().await?;
            let quota = call.directory_quotas.of(&fd);
            let removed = call.filesystem().unlink_file_at(fd, path).await;
            quota.inspect(DirectoryQuota::gave_back);
            told(removed)
        })
    })?;
    types.func_wrap_async("[method]descriptor.remove-directory-at", |mut store: Store<'_>, (fd, path)| {
        Box::new(async move {
            let call = store.data_mut().use_files_first().await?;
            let quota = call.directory_quotas.of(&fd);
            let removed = call.filesystem().remove_directory_at(fd, path).await;
            quota.inspect(DirectoryQuota::gave_back);
            told(removed)
        })
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

type Directories = wasmtime::Result<(Vec<(Resource<Descriptor>, String)>,)>;

fn get_directories(call: &mut Call) -> Directories {
    call.denials.looked_for_directories();
    let found = call.filesystem().get_directories()?;
    for (descriptor, guest) in &found {
        let quota =
            call.directory_quotas.granted.iter().find(|(name, _)| name == guest).map(|(_, quota)| quota.clone());
        call.directory_quotas.set(descriptor, quota);
    }
    Ok((found,))
}

fn file(call: &mut Call, fd: &Resource<Descriptor>) -> FsResult<Option<Arc<std::fs::File>>> {
    Ok(match call.filesystem().table.get(fd)? {
        Descriptor::File(file) => Some(Arc::clone(&file.file)),
        Descriptor::Dir(_) => None,
    })
}

async fn write(call: &mut Call, fd: Resource<Descriptor>, bytes: Vec<u8>, offset: u64) -> FsResult<u64> {
    let mut _taken = None;
    if let (Some(quota), Some(file)) = (call.directory_quotas.of(&fd), file(call, &fd)?) {
        let end = offset.saturating_add(bytes.len() as u64);
        _taken = Some(quota.take(&Addition::UpTo(file, end)).await.map_err(ErrorCode::from)?);
    }
    call.filesystem().write(fd, bytes, offset).await
}

/// Without an offset at the end of the file.
fn stream(call: &mut Call, fd: Resource<Descriptor>, offset: Option<u64>) -> FsResult<Resource<DynOutputStream>> {
    let quota = call.directory_quotas.of(&fd);
    let file = file(call, &fd)?;
    let mut filesystem = call.filesystem();
    let made = match offset {
        Some(offset) => filesystem.write_via_stream(fd, offset)?,
        None => filesystem.append_via_stream(fd)?,
    };
    let (Some(quota), Some(file)) = (quota, file) else { return Ok(made) };
    let inner = filesystem.table.delete(made)?;
    let counted: DynOutputStream = Box::new(Counted::new(inner, file, quota, offset));
    Ok(filesystem.table.push(counted)?)
}

async fn set_size(call: &mut Call, fd: Resource<Descriptor>, size: u64) -> FsResult<()> {
    let Some((quota, file)) = call.directory_quotas.of(&fd).zip(file(call, &fd)?) else {
        return call.filesystem().set_size(fd, size).await;
    };
    let _taken = quota.take(&Addition::UpTo(file, size)).await.map_err(ErrorCode::from)?;
    let _shrinking = quota.shrinking();
    call.filesystem().set_size(fd, size).await
}

async fn open_at(
    call: &mut Call,
    fd: Resource<Descriptor>,
    at: PathFlags,
    path: String,
    open: OpenFlags,
    flags: DescriptorFlags,
) -> FsResult<Resource<Descriptor>> {
    let quota = call.directory_quotas.of(&fd);
    let mut _taken = None;
    if let Some(quota) = &quota
        && open.contains(OpenFlags::CREATE)
    {
        let same = Resource::new_borrow(fd.rep());
        if call.filesystem().stat_at(same, at, path.clone()).await.is_err() {
            _taken = Some(quota.take_entry(0).await.map_err(ErrorCode::from)?);
        }
    }
    let shrinking = quota.as_ref().filter(|_| open.contains(OpenFlags::TRUNCATE)).map(DirectoryQuota::shrinking);
    let opened = open_plainly(call, &fd, at, path, open, flags).await;
    drop(shrinking);
    if let Some(quota) = &quota
        && opened.is_err()
    {
        // What was counted for a new entry has not become one.
        quota.gave_back();
    }
    let opened = opened?;
    if let (Some(quota), Some(file)) = (&quota, file(call, &opened)?) {
        quota.opened(&file);
    }
    if !call.directory_quotas.granted.is_empty() {
        call.directory_quotas.set(&opened, quota);
    }
    Ok(opened)
}

/// Opens files and directories only, on a thread that is counted.
async fn open_plainly(
    call: &mut Call,
    fd: &Resource<Descriptor>,
    at: PathFlags,
    path: String,
    open: OpenFlags,
    flags: DescriptorFlags,
) -> FsResult<Resource<Descriptor>> {
    let request = OpenRequest::new(directory(call, fd)?, at, open, flags)?;
    let opened = call.blocking.on_files(move || request.open(&path)).await??;
    Ok(call.filesystem().table.push(opened)?)
}

fn directory<'a>(call: &'a mut Call, fd: &Resource<Descriptor>) -> FsResult<&'a Dir> {
    let table: &'a ResourceTable = call.filesystem().table;
    match table.get(fd)? {
        Descriptor::Dir(dir) => Ok(dir),
        Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
    }
}

/// What has to be opened for it is opened like everything else; a link itself need not be.
async fn set_times_at(
    call: &mut Call,
    fd: Resource<Descriptor>,
    at: PathFlags,
    path: String,
    accessed: NewTimestamp,
    modified: NewTimestamp,
) -> FsResult<()> {
    if !at.contains(PathFlags::SYMLINK_FOLLOW) {
        return call.filesystem().set_times_at(fd, at, path, accessed, modified).await;
    }
    let [write, read] = OpenRequest::to_touch(directory(call, &fd)?)?;
    let opened = call.blocking.on_files(move || write.open(&path).or_else(|_| read.open(&path))).await??;
    let opened = call.filesystem().table.push(opened)?;
    let same = Resource::new_borrow(opened.rep());
    let done = call.filesystem().set_times(same, accessed, modified).await;
    call.filesystem().table.delete(opened)?;
    done
}

async fn create_directory_at(call: &mut Call, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
    let _taken = match call.directory_quotas.of(&fd) {
        Some(quota) => Some(quota.take_entry(0).await.map_err(ErrorCode::from)?),
        None => None,
    };
    call.filesystem().create_directory_at(fd, path).await
}

async fn symlink_at(call: &mut Call, fd: Resource<Descriptor>, target: String, path: String) -> FsResult<()> {
    let _taken = match call.directory_quotas.of(&fd) {
        Some(quota) => Some(quota.take_entry(target.len() as u64).await.map_err(ErrorCode::from)?),
        None => None,
    };
    call.filesystem().symlink_at(fd, target, path).await
}

/// The next entry whose name WASI can say, which is UTF-8. An error in another's place ends the listing in wasi-libc,
/// and with it what comes behind.
async fn read_directory_entry(
    call: &mut Call,
    entries: &Resource<ReaddirIterator>,
) -> FsResult<Option<DirectoryEntry>> {
    loop {
        let entry = call.filesystem().read_directory_entry(Resource::new_borrow(entries.rep())).await;
        match entry {
            Err(error) if matches!(error.downcast_ref(), Some(ErrorCode::IllegalByteSequence)) => {}
            entry => return entry,
        }
    }
}

/// Whether something may go from one directory to another: never past a count.
fn common_quota(
    call: &Call,
    from: &Resource<Descriptor>,
    into: &Resource<Descriptor>,
) -> FsResult<Option<DirectoryQuota>> {
    match (call.directory_quotas.of(from), call.directory_quotas.of(into)) {
        (None, None) => Ok(None),
        (Some(from), Some(into)) if from.is_same(&into) => Ok(Some(into)),
        _ => Err(ErrorCode::CrossDevice.into()),
    }
}

async fn link_at(
    call: &mut Call,
    fd: Resource<Descriptor>,
    at: PathFlags,
    from: String,
    into: Resource<Descriptor>,
    path: String,
) -> FsResult<()> {
    let Some(quota) = common_quota(call, &fd, &into)? else {
        return call.filesystem().link_at(fd, at, from, into, path).await;
    };
    let _taken = quota.take_entry(0).await.map_err(ErrorCode::from)?;
    let _still = quota.still().await;
    call.filesystem().link_at(fd, at, from, into, path).await
}

async fn rename_at(
    call: &mut Call,
    fd: Resource<Descriptor>,
    from: String,
    into: Resource<Descriptor>,
    path: String,
) -> FsResult<()> {
    let Some(quota) = common_quota(call, &fd, &into)? else {
        return call.filesystem().rename_at(fd, from, into, path).await;
    };
    let _still = quota.still().await;
    let renamed = call.filesystem().rename_at(fd, from, into, path).await;
    // What had the name before is gone.
    quota.gave_back();
    renamed
}
