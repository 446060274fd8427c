//! Data that clients read by URI.

use std::collections::BTreeMap;

use crate::bindings::bulkhead::plugin::types::{Annotations, CallError, ResourceBody, ResourceContents};
use crate::bindings::resources::{ResourceInfo, ResourcePage, ResourceTemplate as TemplateInfo};
use crate::complete::Completer;
use crate::listing::{completed, listed};
use crate::{Error, uri_template};

/// Resources on one page of the list.
const PAGE: usize = 100;

/// What a resource holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Readable text.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

/// A type that reading a resource may return.
pub trait IntoBody {
    /// The contents.
    ///
    /// # Errors
    ///
    /// Those of the request.
    fn into_body(self) -> Result<Body, CallError>;
}

impl IntoBody for Body {
    fn into_body(self) -> Result<Body, CallError> {
        Ok(self)
    }
}

impl IntoBody for String {
    fn into_body(self) -> Result<Body, CallError> {
        Ok(Body::Text(self))
    }
}

impl IntoBody for &'static str {
    fn into_body(self) -> Result<Body, CallError> {
        Ok(Body::Text(self.to_owned()))
    }
}

impl IntoBody for Vec<u8> {
    fn into_body(self) -> Result<Body, CallError> {
        Ok(Body::Bytes(self))
    }
}

impl<T: IntoBody, E: Into<Error>> IntoBody for Result<T, E> {
    fn into_body(self) -> Result<Body, CallError> {
        self.map_err(|error| error.into().into_call_error())?.into_body()
    }
}

/// One resource that clients see in the list.
///
/// ```
/// use bulkhead_plugin::{Plugin, Resource};
///
/// fn plugin() -> Plugin {
///     Plugin::new().resource(Resource::new("notes://today", "today", || "Buy bread.").mime_type("text/plain"))
/// }
///
/// let contents = plugin().read("notes://today").unwrap();
/// assert_eq!(contents[0].uri, "notes://today");
/// assert!(plugin().read("notes://tomorrow").is_err());
/// ```
pub struct Resource {
    info: ResourceInfo,
    read: Box<dyn Fn() -> Result<Body, CallError>>,
}

impl Resource {
    /// A resource that `read` fetches. The URI has a scheme; the name is for people and models.
    pub fn new<R: IntoBody>(uri: impl Into<String>, name: impl Into<String>, read: impl Fn() -> R + 'static) -> Self {
        let info = ResourceInfo {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            annotations: None,
            icons: Vec::new(),
            meta: Vec::new(),
        };
        Self { info, read: Box::new(move || read().into_body()) }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.info.size = Some(bytes);
        self
    }
}

/// The variables of a URI that fits a template.
#[derive(Debug, Clone, Default)]
pub struct Variables(pub(crate) BTreeMap<String, String>);

impl Variables {
    /// The value of a variable, percent-encoding removed; empty where the template has no such variable.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

type ReadMember = Box<dyn Fn(&Variables) -> Result<Body, CallError>>;

/// A family of resources, by URI template.
///
/// Two kinds of expressions are understood: `{name}` stands for one or more characters without `/`, `?` and `#`, and
/// `{+name}` for any.
///
/// ```
/// use bulkhead_plugin::{Plugin, ResourceTemplate};
///
/// fn plugin() -> Plugin {
///     Plugin::new().resource_template(
///         ResourceTemplate::new("weather://{city}/now", "weather", |of| format!("Rain in {}", of.get("city")))
///             .complete("city", |partial| {
///                 let cities = ["Lima", "Lisbon"].into_iter();
///                 cities.filter(|city| city.starts_with(partial.value())).map(str::to_owned).collect()
///             }),
///     )
/// }
///
/// assert!(plugin().read("weather://Lima/now").is_ok());
/// assert!(plugin().read("weather://Lima/tomorrow").is_err());
/// ```
pub struct ResourceTemplate {
    pub(crate) info: TemplateInfo,
    pub(crate) completers: Vec<(String, Completer)>,
    read: ReadMember,
}

impl ResourceTemplate {
    /// A family whose members `read` fetches.
    pub fn new<R: IntoBody>(
        uri_template: impl Into<String>,
        name: impl Into<String>,
        read: impl Fn(&Variables) -> R + 'static,
    ) -> Self {
        let info = TemplateInfo {
            uri_template: uri_template.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            annotations: None,
            icons: Vec::new(),
            meta: Vec::new(),
        };
        Self { info, completers: Vec::new(), read: Box::new(move |variables| read(variables).into_body()) }
    }
}

/// What clients are told of one resource and of a family alike.
macro_rules! told {
    ($type:ident) => {
        impl $type {
            /// What is in it.
            #[must_use]
            pub fn description(mut self, description: impl Into<String>) -> Self {
                self.info.description = Some(description.into());
                self
            }

            /// The media type, in the list and on what is read.
            #[must_use]
            pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
                self.info.mime_type = Some(mime_type.into());
                self
            }

            /// Hints for clients.
            #[must_use]
            pub fn annotations(mut self, annotations: Annotations) -> Self {
                self.info.annotations = Some(annotations);
                self
            }
        }
    };
}

told!(Resource);
told!(ResourceTemplate);
listed!(Resource, ResourceTemplate);
completed!(ResourceTemplate);

/// One page of the list. The cursor is where it begins.
pub(crate) fn page(resources: &[Resource], cursor: Option<&str>) -> Result<ResourcePage, CallError> {
    let begin = match cursor {
        None => 0,
        Some(cursor) => {
            cursor.parse().map_err(|_| CallError::InvalidParams("this is no cursor of this list".into()))?
        }
    };
    let items: Vec<_> = resources.iter().skip(begin).take(PAGE).map(|resource| resource.info.clone()).collect();
    let end = begin.saturating_add(items.len());
    let next = (end < resources.len()).then(|| end.to_string());
    Ok(ResourcePage { items, next, meta: Vec::new() })
}

/// Reads what has this URI: a listed resource, else a member of the first family that it fits.
pub(crate) fn read(
    resources: &[Resource],
    templates: &[ResourceTemplate],
    uri: &str,
) -> Result<Vec<ResourceContents>, CallError> {
    let (body, mime_type, meta) = if let Some(resource) = resources.iter().find(|resource| resource.info.uri == uri) {
        ((resource.read)()?, &resource.info.mime_type, &resource.info.meta)
    } else {
        let member = templates.iter().find_map(|template| {
            uri_template::variables(&template.info.uri_template, uri).map(|found| (template, found))
        });
        let Some((template, variables)) = member else {
            return Err(CallError::NotFound(format!("there is no resource {uri}")));
        };
        ((template.read)(&Variables(variables))?, &template.info.mime_type, &template.info.meta)
    };
    let body = match body {
        Body::Text(text) => ResourceBody::Text(text),
        Body::Bytes(bytes) => ResourceBody::Blob(bytes),
    };
    Ok(vec![ResourceContents { uri: uri.to_owned(), mime_type: mime_type.clone(), body, meta: meta.clone() }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_of_a_resource_is_on_its_contents_too() {
        let csp = serde_json::json!({"csp": {"connectDomains": ["https://api.example.com"]}});
        let view = Resource::new("ui://view", "view", || "<html>").meta("ui", &csp);
        let family = ResourceTemplate::new("ui://{name}/more", "more", |_| "<html>").meta("ui", &csp);
        let expected = [("ui".to_owned(), csp.to_string())];
        assert_eq!(page(std::slice::from_ref(&view), None).unwrap().items[0].meta, expected);
        for uri in ["ui://view", "ui://other/more"] {
            let read = read(std::slice::from_ref(&view), std::slice::from_ref(&family), uri).unwrap();
            assert_eq!(read[0].meta, expected, "{uri}");
        }
    }

    #[test]
    fn long_resource_list_is_paged() {
        let resources: Vec<_> =
            (0..PAGE + 1).map(|number| Resource::new(format!("n://{number}"), "n", || "x")).collect();
        let first = page(&resources, None).unwrap();
        assert_eq!(first.items.len(), PAGE);
        let second = page(&resources, first.next.as_deref()).unwrap();
        assert_eq!((second.items.len(), second.next), (1, None));
        assert!(page(&resources, Some("x")).is_err());
    }
}
