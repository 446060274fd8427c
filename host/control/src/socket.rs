//! The socket file: its name, its mode, its length.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// Bytes of the control socket's path: `sun_path` holds 108 with the final zero.
const PATH_BYTES_MAX: usize = 107;
const O_PATH: i32 = 0o10_000_000;

/// A name that the kernel accepts: a long one is shortened to the folder's descriptor, which must stay open meanwhile.
struct Address {
    path: PathBuf,
    _folder: Option<File>,
}

impl Address {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a socket"));
        };
        let folder = OpenOptions::new().read(true).custom_flags(O_PATH).open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Listens at `path`. A socket that lies there is a dead host's: the caller holds the data directory's lock.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is not a socket is in the way"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let address = Address::of(path)?;
    let listener = UnixListener::bind(&address.path)?;
    // Whoever connected before this line is still asked who they are.
    std::fs::set_permissions(&address.path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to the host that listens at `path`; `None` when there is none.
pub(super) async fn connect(path: &Path) -> io::Result<Option<UnixStream>> {
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let address = Address::of(path)?;
    match UnixStream::connect(&address.path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
