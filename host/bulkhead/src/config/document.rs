//! The configuration file as a tree with places: sections into layers, everything unknown into the report.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::admin::{self, AdminConfig};
use super::auth::{self, AuthConfig, SecretLocation};
use super::encryption;
use super::exposure::{self, TlsConfig};
use super::grants::read_bound;
use super::keys::{self, Scope, Value};
use super::layer::{self, Layer, Values};
use super::plugin::{self, PluginEntry};
use super::trust::{self, TrustConfig};
use super::{ConfigLocation, File, Report, SecretsConfig};
use bulkhead_domain::limits::CPU_WEIGHT_MAX;
use bulkhead_domain::names::check_name;
use bulkhead_plugins::Pinning;
use bulkhead_runtime::policy::Bound;

/// What the file says beside the fixed sections.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) plugins: Vec<PluginEntry>,
    pub(super) auth: AuthConfig,
    pub(super) tls: Option<TlsConfig>,
    pub(super) admin: Option<AdminConfig>,
    pub(super) trust: Vec<TrustConfig>,
    pub(super) secrets: SecretsConfig,
    pub(super) encryption: Option<SecretLocation>,
}

/// What a tenant's calls weigh when nobody says.
const CPU_WEIGHT: u32 = 1;

/// `[tenant.NAME]`.
#[derive(Debug)]
pub(super) struct TenantEntry {
    pub(super) name: String,
    pub(super) values: Values,
    pub(super) changed_definitions: Option<Pinning>,
    pub(super) grants: Bound,
    pub(super) cpu_weight: u32,
}

/// Reads parts of the tree; knows where each part was written and where to complain.
pub(super) struct Reader<'a> {
    file: File<'a>,
    pub(super) report: &'a mut Report,
}

/// A table that no key may be left over in.
pub(super) type Table<'i> = DeTable<'i>;
/// A value with its span.
pub(super) type Node<'i> = Spanned<DeValue<'i>>;

/// Reads the file: the fixed sections into `base`, the rest into the answer.
pub(super) fn read(file: File<'_>, base: &mut Layer<'_>, report: &mut Report) -> Parsed {
    let mut reader = Reader { file, report };
    let (tree, errors) = DeTable::parse_recoverable(file.text);
    if !errors.is_empty() {
        for error in errors {
            let place = reader.place(error.span().map_or(0, |span| span.start));
            reader.report.add(&place, format!("not valid TOML: {}", error.message().trim_end()));
        }
        return Parsed::default();
    }
    let mut parsed = Parsed::default();
    for (name, node) in tree.get_ref() {
        match name.get_ref().as_ref() {
            "server" => {
                reader.fixed_section("server", node, base);
                let tls = node.get_ref().as_table().and_then(|server| server.get("tls"));
                parsed.tls = tls.and_then(|node| exposure::read_tls(&mut reader, node));
            }
            "limits" | "call" | "compile" | "log" | "audit" | "sources" => {
                reader.fixed_section(name.get_ref(), node, base)
            }
            "admin" => parsed.admin = admin::read(&mut reader, node),
            "auth" => parsed.auth = auth::read(&mut reader, node),
            "encryption" => parsed.encryption = encryption::read(&mut reader, node),
            "plugin" => parsed.plugins = plugin::read(&mut reader, node),
            "secrets" => parsed.secrets = reader.secrets(node),
            "trust" => parsed.trust = trust::read(&mut reader, node),
            "tenant" => parsed.tenants = reader.tenants(node),
            "token" => reader.refuse(
                node,
                "token: tokens are not kept in the configuration; `bulkhead token create --requestor NAME` makes one",
            ),
            other => {
                let place = reader.place(name.span().start);
                let known = "[server], [admin], [auth], [limits], [call], [compile], [log], [audit], [sources], [encryption], [secrets], [[trust]], [[plugin]] \
                     and [tenant.NAME]";
                reader.report.add(&place, format!("{other}: no such section; there are {known}"));
            }
        }
    }
    parsed
}

impl Reader<'_> {
    /// The line of a byte offset.
    fn place(&self, offset: usize) -> ConfigLocation {
        let before = self.file.text.as_bytes().get(..offset).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigLocation::File { file: self.file.path.display().to_string(), line }
    }

    /// Where a node was written.
    pub(super) fn place_of<T>(&self, node: &Spanned<T>) -> ConfigLocation {
        self.place(node.span().start)
    }

    /// Complains about a node.
    pub(super) fn refuse<T>(&mut self, node: &Spanned<T>, message: impl Into<String>) {
        let place = self.place_of(node);
        self.report.add(&place, message);
    }

    /// A path of the file starts at the file's folder.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder().join(text)
    }

    /// Where paths of the file start.
    pub(super) fn folder(&self) -> &Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }

    /// The node as a table; complains otherwise.
    pub(super) fn table<'n, 'i>(&mut self, name: &str, node: &'n Node<'i>) -> Option<&'n Table<'i>> {
        let table = node.get_ref().as_table();
        if table.is_none() {
            self.refuse(node, format!("{name}: must be a table, not {}", node.get_ref().type_str()));
        }
        table
    }

    /// The node as a text; complains otherwise.
    pub(super) fn text(&mut self, name: &str, node: &Node<'_>) -> Option<String> {
        let text = node.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.refuse(node, format!("{name}: must be a string, not {}", node.get_ref().type_str()));
        }
        text
    }

    /// The node as a list; complains otherwise.
    pub(super) fn list<'n, 'i>(&mut self, name: &str, node: &'n Node<'i>) -> &'n [Node<'i>] {
        match node.get_ref().as_array() {
            Some(array) => array,
            None => {
                self.refuse(node, format!("{name}: must be a list, not {}", node.get_ref().type_str()));
                &[]
            }
        }
    }

    /// The node as a text that means something; complains otherwise.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        node: &Node<'_>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(name, node)?;
        parse(&text).map_err(|message| self.refuse(node, format!("{name}: {message}"))).ok()
    }

    /// The node as a list of such texts; complains about the others.
    pub(super) fn texts<T>(
        &mut self,
        name: &str,
        node: &Node<'_>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        self.list(name, node).iter().filter_map(|node| self.parsed(name, node, &parse)).collect()
    }

    /// The node as a switch, off otherwise; complains then.
    pub(super) fn switch(&mut self, name: &str, node: &Node<'_>) -> bool {
        let switch = node.get_ref().as_bool();
        if switch.is_none() {
            self.refuse(node, format!("{name}: must be true or false, not {}", node.get_ref().type_str()));
        }
        switch.unwrap_or_default()
    }

    /// The node as a number within bounds; complains otherwise.
    pub(super) fn number(&mut self, name: &str, node: &Node<'_>, min: u64, max: u64) -> Option<u64> {
        let number = match node.get_ref() {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.refuse(node, format!("{name}: must be a whole number from {min} to {max}"));
        }
        number
    }

    /// `[secrets]`.
    fn secrets(&mut self, node: &Node<'_>) -> SecretsConfig {
        let mut secrets = SecretsConfig::default();
        let Some(table) = self.table("secrets", node) else { return secrets };
        for (key, node) in table {
            match key.get_ref().as_ref() {
                "key_file" => secrets.key_file = self.text("secrets.key_file", node).map(|text| self.path(&text)),
                other => self.refuse(key, format!("secrets.{other}: no such key; there is key_file")),
            }
        }
        secrets
    }

    /// The sections whose keys are in the table of keys.
    fn fixed_section(&mut self, section: &str, node: &Node<'_>, base: &mut Layer<'_>) {
        let Some(table) = self.table(section, node) else { return };
        for (name, node) in table {
            // A table of its own.
            if section == "server" && name.get_ref() == "tls" {
                continue;
            }
            let Some(key) = keys::find(section, name.get_ref()) else {
                self.refuse(name, format!("{section}.{}: no such key in [{section}]", name.get_ref()));
                continue;
            };
            let place = self.place_of(node);
            let mut value = self.value(node);
            if keys::is_path(key) {
                let path = |text: &String| self.path(text).to_string_lossy().into_owned();
                match &mut value {
                    Value::Text(text) if !text.is_empty() => *text = path(text),
                    Value::List(list) => list.iter_mut().for_each(|text| *text = path(text)),
                    _ => {}
                }
            }
            base.set(key, value, &place, self.report);
        }
    }

    /// Overrides of `[limits]` or `[call]`; `prefix` is what stands in front of the section in messages.
    pub(super) fn overrides(&mut self, prefix: &str, section: &str, node: &Node<'_>) -> Values {
        let mut values = Values::new();
        let Some(table) = self.table(&format!("{prefix}{section}"), node) else { return values };
        for (name, node) in table {
            self.override_value(prefix, section, name, node, &mut values);
        }
        values
    }

    /// One override.
    pub(super) fn override_value(
        &mut self,
        prefix: &str,
        section: &str,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        node: &Node<'_>,
        values: &mut Values,
    ) {
        match keys::find(section, name.get_ref()) {
            None => self.refuse(name, format!("{prefix}{section}.{}: no such key in [{section}]", name.get_ref())),
            Some(key) if key.scope == Scope::Host => {
                self.refuse(name, format!("{prefix}{}: holds for the whole host; set it in [{section}]", key.path()))
            }
            Some(key) => {
                let place = self.place_of(node);
                let value = self.value(node);
                layer::set(values, key, value, prefix, &place, self.report);
            }
        }
    }

    /// `[tenant.NAME]`.
    fn tenants(&mut self, node: &Node<'_>) -> Vec<TenantEntry> {
        let mut tenants = Vec::new();
        let Some(table) = self.table("tenant", node) else { return tenants };
        for (name, node) in table {
            let tenant = name.get_ref().to_string();
            if let Err(message) = check_name(&tenant) {
                self.refuse(name, format!("tenant.{tenant}: {message}"));
            }
            let prefix = format!("tenant.{tenant}.");
            let Some(table) = self.table(&format!("tenant.{tenant}"), node) else { continue };
            let mut cpu_weight = CPU_WEIGHT;
            let (mut values, mut changed_definitions, mut grants) = (Values::new(), None, Bound::default());
            for (key, node) in table {
                match key.get_ref().as_ref() {
                    "changed_definitions" => {
                        changed_definitions = trust::read_pinning(self, &format!("{prefix}changed_definitions"), node);
                    }
                    "grants" => grants = read_bound(self, &format!("{prefix}grants"), node),
                    "limits" => values = self.overrides(&prefix, "limits", node),
                    "cpu_weight" => cpu_weight = self.cpu_weight(&prefix, node),
                    other => {
                        let known = "a tenant has [tenant.NAME.limits], [tenant.NAME.grants], cpu_weight and changed_definitions";
                        self.refuse(key, format!("{prefix}{other}: no such key; {known}"));
                    }
                }
            }
            tenants.push(TenantEntry { name: tenant, values, changed_definitions, grants, cpu_weight });
        }
        tenants
    }

    /// `[tenant.NAME] cpu_weight`.
    fn cpu_weight(&mut self, prefix: &str, node: &Node<'_>) -> u32 {
        let max = u64::from(CPU_WEIGHT_MAX);
        match self.value(node) {
            Value::Number(number) if (1..=max).contains(&number) => u32::try_from(number).unwrap_or(CPU_WEIGHT_MAX),
            _ => {
                self.refuse(node, format!("{prefix}cpu_weight: must be an integer from 1 to {max}"));
                CPU_WEIGHT
            }
        }
    }

    /// A scalar or a list of texts.
    fn value(&mut self, node: &Node<'_>) -> Value {
        match node.get_ref() {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix())
                .map_or(Value::Other("a negative or too large number"), Value::Number),
            DeValue::Boolean(switch) => Value::Switch(*switch),
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Array(array) => {
                let texts: Option<Vec<_>> =
                    array.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
                texts.map_or(Value::Other("a list of something else"), Value::List)
            }
            DeValue::Float(_) => Value::Other("a number with a fraction"),
            DeValue::Datetime(_) => Value::Other("a date"),
            DeValue::Table(_) => Value::Other("a table"),
        }
    }
}
