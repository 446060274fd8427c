//! What the library asks of the way out: for each request, and how bodies of guests are passed on.
//!
//! Owns no decision about what may leave. Invariant: a held request is sent by its holder or never.

use wasmtime_wasi_http::p2::{DEFAULT_OUTGOING_BODY_BUFFER_CHUNKS, DEFAULT_OUTGOING_BODY_CHUNK_SIZE};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::Egress;
use super::response::{Driver, Response};
use crate::limits::HTTP_PIECE_BYTES_MAX;

/// Pieces of a body that is held until it is complete: as many as its bytes can be. What is held is bounded by its
/// bytes.
const BUFFERED_CHUNKS: usize = 1 << 20;

impl WasiHttpHooks for Egress {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _sent: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<(Response, Driver), Error>> + Send> {
        if self.holds {
            self.held = Some((request, options));
            return Box::new(std::future::pending());
        }
        Box::new(self.send(request, options))
    }

    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        if self.buffers { BUFFERED_CHUNKS } else { DEFAULT_OUTGOING_BODY_BUFFER_CHUNKS }
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        if self.buffers { HTTP_PIECE_BYTES_MAX } else { DEFAULT_OUTGOING_BODY_CHUNK_SIZE }
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        HTTP_PIECE_BYTES_MAX
    }

    fn p3_error_from_hyper(&mut self, _: &hyper::Error) -> wasmtime_wasi_http::p3::bindings::http::types::ErrorCode {
        wasmtime_wasi_http::p3::bindings::http::types::ErrorCode::HttpProtocolError
    }

    fn p3_error_from_connect(
        &mut self,
        _: &std::io::Error,
    ) -> wasmtime_wasi_http::p3::bindings::http::types::ErrorCode {
        wasmtime_wasi_http::p3::bindings::http::types::ErrorCode::ConnectionRefused
    }

    fn p3_error_from_tls(&mut self, _: &std::io::Error) -> wasmtime_wasi_http::p3::bindings::http::types::ErrorCode {
        wasmtime_wasi_http::p3::bindings::http::types::ErrorCode::TlsProtocolError
    }

    fn p2_error_from_hyper(&mut self, _: &hyper::Error) -> wasmtime_wasi_http::p2::bindings::http::types::ErrorCode {
        wasmtime_wasi_http::p2::bindings::http::types::ErrorCode::HttpProtocolError
    }

    fn p2_error_from_connect(
        &mut self,
        _: &std::io::Error,
    ) -> wasmtime_wasi_http::p2::bindings::http::types::ErrorCode {
        wasmtime_wasi_http::p2::bindings::http::types::ErrorCode::ConnectionRefused
    }

    fn p2_error_from_tls(&mut self, _: &std::io::Error) -> wasmtime_wasi_http::p2::bindings::http::types::ErrorCode {
        wasmtime_wasi_http::p2::bindings::http::types::ErrorCode::TlsProtocolError
    }
}
