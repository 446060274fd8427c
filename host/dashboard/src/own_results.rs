//! The images and files of a requestor's own results, and the requestor's limits.
//!
//! Must not give a browser anything that it might run: a file is bytes to download. Invariant: the bytes of a large
//! answer are within the requestor's room for answers until they are sent.

use bulkhead_control::admin::own_limits;
use bulkhead_domain::rights::Need;
use bulkhead_domain::task::{TaskId, TaskOutput};
use bulkhead_domain::tool::{Content, ContentKind, ResourceBody};
use bulkhead_limits::Permit;
use bulkhead_tasks::Error;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use crate::own_tasks::{Own, absent};
use crate::pages::{self, OwnLimits};
use crate::respond::{self, Answer};
use crate::server::DashboardParts;

/// Bytes that hold a place in the requestor's room for answers.
struct Held {
    bytes: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Own<'_> {
    /// The page of an image.
    pub(crate) async fn image(&self, parts: &DashboardParts, id: &str, index: &str) -> Answer {
        let (id, data) = match self.bytes_of(id, index).await {
            Ok(found) => found,
            Err(error) => return self.failed(&error),
        };
        let Some(media) = pages::media_type(&data) else { return absent(&self.frame) };
        let page = pages::image(&self.frame, id, media, &data).into_string().into_bytes();
        self.send(parts, "text/html; charset=utf-8", page)
    }

    /// A file to download.
    pub(crate) async fn file(&self, parts: &DashboardParts, id: &str, index: &str) -> Answer {
        let data = match self.bytes_of(id, index).await {
            Ok((_, data)) => data,
            Err(error) => return self.failed(&error),
        };
        let mut answer = self.send(parts, "application/octet-stream", data);
        if answer.status() == StatusCode::OK {
            let name = HeaderValue::from_static("attachment; filename=\"result.bin\"");
            answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
        }
        answer
    }

    /// The bytes of one block of a result.
    async fn bytes_of(&self, id: &str, index: &str) -> Result<(TaskId, Vec<u8>), Error> {
        let id = self.may(id, Need::Tasks)?;
        let index: usize = index.parse().map_err(|_| Error::NotFound)?;
        let (_, output) = self.tasks.find_with_output(self.requestor, Some(id), None::<fn() -> String>).await?;
        let Some(TaskOutput::Tool(output)) = output else { return Err(Error::NotFound) };
        let block = output.content.into_iter().nth(index).ok_or(Error::NotFound)?;
        Ok((id, bytes(block).ok_or(Error::NotFound)?))
    }

    fn send(&self, parts: &DashboardParts, media: &'static str, bytes: Vec<u8>) -> Answer {
        self.held(parts, StatusCode::OK, media, bytes).unwrap_or_else(|error| self.failed(&error))
    }

    /// An answer whose bytes are within the requestor's room for answers until they are sent.
    pub(crate) fn held(
        &self,
        parts: &DashboardParts,
        status: StatusCode,
        media: &'static str,
        bytes: Vec<u8>,
    ) -> Result<Answer, Error> {
        let permit = (parts.hold)(self.requestor, bytes.len() as u64)?;
        Ok(respond::answer(status, media, Bytes::from_owner(Held { bytes, _permit: permit })))
    }

    /// What the requestor has in use of its limits.
    pub(crate) async fn limits(&self, parts: &DashboardParts) -> Answer {
        let (own, of_tenant) = match own_limits(self.tasks, &*parts.edge, self.requestor).await {
            Ok(counts) => counts,
            Err(error) => return self.failed(&error),
        };
        let limits = self.tasks.limits(self.requestor);
        let page = OwnLimits { own: &own, of_tenant: &of_tenant, limits: &limits };
        respond::page(StatusCode::OK, pages::own_limits(&self.frame, &page))
    }
}

/// The bytes of a block that is no text.
fn bytes(content: Content) -> Option<Vec<u8>> {
    match content.kind {
        ContentKind::Image { data, .. } | ContentKind::Audio { data, .. } => Some(data),
        ContentKind::Resource(resource) => match resource.body {
            ResourceBody::Blob(data) => Some(data),
            ResourceBody::Text(_) => None,
        },
        ContentKind::Text(_) | ContentKind::ResourceLink(_) => None,
    }
}
