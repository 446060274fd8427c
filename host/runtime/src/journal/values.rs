//! How the values of our own imports stand in a journal.
//!
//! Owns the numbers of their variants, which never change.

use super::codec::{Recorded, fields, variants};
use super::header::{Digest, digest};
use crate::bindings::bulkhead::plugin::keyvalue as wit;
use bulkhead_calls::guest_services::KeyPage;
use bulkhead_calls::journal::reader::Reader;
use bulkhead_calls::policy::{Denial, DeniedDirectory, DeniedRequest, DeniedSecret, SecretPlace};
use bulkhead_domain::Json;
use bulkhead_domain::call::{
    ClientFeature, ElicitationAction, InputRequest, InputRequestError, InputRequestKind, InputResponse, Root,
};

variants!(wit::Error {
    1 => Denied(why),
    2 => Quota(why),
    3 => TooLarge(why),
    4 => Invalid(why),
    5 => Unavailable(why),
});

fields!(KeyPage { keys, next });

variants!(Denial {
    1 => Http(request),
    2 => Directory(directory),
    3 => Variable(key),
    4 => Keyvalue,
    5 => Setting(key),
    6 => Secret(secret),
});

fields!(DeniedRequest { method, tls, host, port });

fields!(DeniedDirectory { guest, write });

fields!(DeniedSecret { name, location });

variants!(SecretPlace { 1 => Header, 2 => Path, 3 => Query, 4 => Body });

variants!(ElicitationAction { 1 => Accept, 2 => Decline, 3 => Cancel });

fields!(Root { uri, name });

variants!(ClientFeature {
    1 => ElicitationForm,
    2 => ElicitationUrl,
    3 => Sampling,
    4 => SamplingTools,
    5 => SamplingContext,
    6 => Roots,
    7 => Tasks,
});

variants!(InputRequestError {
    1 => Unsupported(feature),
    2 => Invalid(why),
    3 => Unreachable(why),
    4 => Cancelled,
});

impl Recorded for InputResponse {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Elicitation { action, content } => {
                to.push(1);
                action.write(to);
                content.write(to);
            }
            Self::Sampling(result) => {
                to.push(2);
                result.write(to);
            }
            Self::Roots(roots) => {
                to.push(3);
                roots.write(to);
            }
            Self::Refused(message) => {
                to.push(4);
                message.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match u8::read(from)? {
            1 => Self::Elicitation { action: Recorded::read(from)?, content: Recorded::read(from)? },
            2 => Self::Sampling(Recorded::read(from)?),
            3 => Self::Roots(Recorded::read(from)?),
            4 => Self::Refused(Recorded::read(from)?),
            _ => return None,
        })
    }
}

/// The digest of what is asked of a client.
pub(super) fn digest_of_requests(requests: &[InputRequest]) -> Digest {
    let mut written = Vec::new();
    for InputRequest { key, kind, meta } in requests {
        let none = || Json::new("");
        let (number, texts) = match kind {
            InputRequestKind::Form { message, requested_schema } => (1_u8, (message.clone(), requested_schema.clone())),
            InputRequestKind::Url { message, url, elicitation_id } => {
                (2, (format!("{elicitation_id} {url}"), Json::new(message.as_str())))
            }
            InputRequestKind::Sampling(params) => (3, (String::new(), params.clone())),
            InputRequestKind::Roots => (4, (String::new(), none())),
        };
        key.write(&mut written);
        number.write(&mut written);
        texts.write(&mut written);
        meta.write(&mut written);
    }
    digest([&*written])
}

/// What came of a question. `None`: nobody could be reached.
pub(super) type Answers = Option<Result<Vec<InputResponse>, InputRequestError>>;

#[cfg(test)]
mod tests {
    use super::super::codec::{decode, encode};
    use super::*;

    #[test]
    fn answers_come_back_as_they_were() {
        let form = InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(Json::new("{}")) };
        let roots = InputResponse::Roots(vec![Root { uri: "file:///a".to_owned(), name: None }]);
        let sampling = InputResponse::Sampling(Json::new("{\"model\":\"m\"}"));
        let refused = InputResponse::Refused("no".to_owned());
        let all: Answers = Some(Ok(vec![form, roots, sampling, refused]));
        let unsupported: Answers = Some(Err(InputRequestError::Unsupported(ClientFeature::SamplingTools)));
        for answers in [all, unsupported, Some(Err(InputRequestError::Cancelled)), None] {
            assert_eq!(decode::<Answers>(&encode(&answers)), Some(answers));
        }
    }

    #[test]
    fn questions_that_differ_have_different_digests() {
        let form = |message: &str| InputRequest {
            key: "k".to_owned(),
            kind: InputRequestKind::Form { message: message.to_owned(), requested_schema: Json::new("{}") },
            meta: Vec::new(),
        };
        assert_eq!(digest_of_requests(&[form("a")]), digest_of_requests(&[form("a")]));
        assert_ne!(digest_of_requests(&[form("a")]), digest_of_requests(&[form("b")]));
        let roots = InputRequest { key: "k".to_owned(), kind: InputRequestKind::Roots, meta: Vec::new() };
        assert_ne!(digest_of_requests(&[form("a"), roots]), digest_of_requests(&[form("a")]));
    }
}
