//! What may stand in the parentheses.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser as _;
use syn::{Error, LitBool, LitStr, Token};

const KNOWN: &str =
    "`name`, `title`, `description`, `task`, `read_only`, `idempotent`, `destructive` and `open_world` are known";

/// As written.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    title: Option<LitStr>,
    task: Option<Task>,
    read_only: bool,
    idempotent: bool,
    destructive: Option<bool>,
    open_world: Option<bool>,
}

enum Task {
    Forbidden,
    Optional,
    Required,
}

impl Options {
    pub(crate) fn read(tokens: Tokens) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        let parser = syn::meta::parser(|meta| {
            let Some(option) = meta.path.get_ident().map(ToString::to_string) else { return Err(meta.error(KNOWN)) };
            if seen.contains(&option) {
                return Err(meta.error(format!("`{option}` is there twice")));
            }
            options.take(&option, &meta)?;
            seen.push(option);
            Ok(())
        });
        parser.parse2(tokens)?;
        Ok(options)
    }

    fn take(&mut self, option: &str, meta: &ParseNestedMeta<'_>) -> Result<(), Error> {
        match option {
            "name" => self.name = Some(name(meta)?),
            "title" => self.title = Some(text(meta)?),
            "description" => self.description = Some(text(meta)?),
            "task" => self.task = Some(task(meta)?),
            "read_only" => self.read_only = true,
            "idempotent" => self.idempotent = true,
            "destructive" => self.destructive = Some(flag(meta)?),
            "open_world" => self.open_world = Some(flag(meta)?),
            _ => return Err(meta.error(format!("there is no option `{option}`: {KNOWN}"))),
        }
        Ok(())
    }

    /// The methods of the builder that say the same.
    pub(crate) fn calls(&self) -> Vec<Tokens> {
        let title = self.title.iter().map(|title| quote!(.title(#title)));
        let task = self.task.iter().map(|task| match task {
            Task::Forbidden => Tokens::new(),
            Task::Optional => quote!(.task_optional()),
            Task::Required => quote!(.task_required()),
        });
        let read_only = self.read_only.then(|| quote!(.read_only()));
        let idempotent = self.idempotent.then(|| quote!(.idempotent()));
        let destructive = self.destructive.iter().map(|said| quote!(.destructive(#said)));
        let open_world = self.open_world.iter().map(|said| quote!(.open_world(#said)));
        title.chain(task).chain(read_only).chain(idempotent).chain(destructive).chain(open_world).collect()
    }
}

fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr, Error> {
    meta.value()?.parse()
}

/// The host's own rule, said where the name is written.
fn name(meta: &ParseNestedMeta<'_>) -> Result<LitStr, Error> {
    let name = text(meta)?;
    let value = name.value();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=128).contains(&value.len()) && value.bytes().all(is_plain) {
        Ok(name)
    } else {
        Err(Error::new(name.span(), "a tool's name is 1 to 128 characters of [A-Za-z0-9_.-]"))
    }
}

fn task(meta: &ParseNestedMeta<'_>) -> Result<Task, Error> {
    let word = text(meta)?;
    match word.value().as_str() {
        "forbidden" => Ok(Task::Forbidden),
        "optional" => Ok(Task::Optional),
        "required" => Ok(Task::Required),
        _ => Err(Error::new(word.span(), "`task` is \"forbidden\", \"optional\" or \"required\"")),
    }
}

/// `destructive` and `destructive = true` are the same.
fn flag(meta: &ParseNestedMeta<'_>) -> Result<bool, Error> {
    if meta.input.peek(Token![=]) { Ok(meta.value()?.parse::<LitBool>()?.value) } else { Ok(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(tokens: Tokens) -> String {
        Options::read(tokens).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn tool_options_become_builder_calls() {
        let options =
            Options::read(quote!(title = "A", task = "optional", read_only, destructive = false, open_world,)).unwrap();
        let said: Vec<_> = options.calls().iter().map(|call| call.to_string().replace(' ', "")).collect();
        assert_eq!(
            said,
            [".title(\"A\")", ".task_optional()", ".read_only()", ".destructive(false)", ".open_world(true)"]
        );
    }

    #[test]
    fn unknown_tool_option_error_lists_known_ones() {
        assert!(wrong(quote!(readonly)).contains("no option `readonly`: `name`"));
        assert!(wrong(quote!(task = "maybe")).contains("\"required\""));
        assert!(wrong(quote!(name = "a b")).contains("A-Za-z0-9"));
        assert!(wrong(quote!(read_only, read_only)).contains("twice"));
        assert!(!wrong(quote!(title = 3)).is_empty());
    }
}
