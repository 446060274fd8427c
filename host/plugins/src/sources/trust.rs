//! Whom a component may come from.
//!
//! Invariant: a [`Verified`] exists only after every check; the first rule whose pattern fits a source decides about
//! it, and what comes over a network is never taken because nobody said anything.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::pattern::Pattern;
use super::{Digest, Error, Fetched, PublicKey, Refusal, Signature, Source};
use crate::{Candidate, Pinning, Provenance, Signer};
use bulkhead_runtime::{Part, Wit, compose};
use bulkhead_sources::signature::message;

/// What the sources of a pattern need.
#[derive(Clone, Debug)]
pub struct Rule {
    pub pattern: Pattern,
    /// One of these must have signed. Empty: nobody needs to.
    pub keys: Vec<TrustedKey>,
    /// Whether a signature from a registry must also name the repository that it came from.
    pub same_repository: bool,
    /// What becomes of accepted definitions that a version from there changes, if the rule says anything.
    pub changed_definitions: Option<Pinning>,
}

/// A key of a rule.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    pub key: PublicKey,
    /// Where the operator has it.
    pub file: PathBuf,
}

/// The rules, in the operator's order.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    rules: Vec<Rule>,
}

/// A component that may become a version of a plugin.
#[derive(Clone, Debug)]
pub struct Verified {
    fetched: Fetched,
    source: Source,
    /// [`PublicKey::id`] of the required keys that have signed.
    signed_by: Vec<String>,
    /// What the rule says of definitions that change.
    changed_definitions: Option<Pinning>,
    /// Whether a rule wants changes noted that another one lets pass.
    shows_changes: bool,
}

impl Trust {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// The one way from bytes to a candidate.
    ///
    /// `pinned` is what the operator says that the component's SHA-256 is.
    ///
    /// # Errors
    /// Another digest, no rule that lets it in, or not the signature that the rule wants.
    pub fn verify(&self, source: &Source, pinned: Option<Digest>, fetched: Fetched) -> Result<Verified, Refusal> {
        let refuse = |expected: String, found: String| Refusal { source_name: source.to_string(), expected, found };
        if let Some(pinned) = pinned.filter(|pinned| *pinned != fetched.sha256) {
            return Err(refuse(format!("sha256 {pinned}"), format!("sha256 {}", fetched.sha256)));
        }
        let rule = self.rules.iter().find(|rule| rule.pattern.fits(source, fetched.file.as_deref()));
        let changed_definitions = rule.and_then(|rule| rule.changed_definitions);
        let verified = |fetched, signed_by| {
            let source = source.clone();
            Verified { fetched, source, signed_by, changed_definitions, shows_changes: false }
        };
        let Some(rule) = rule else {
            let named = pinned.is_some() || matches!(source, Source::Oci(oci) if oci.digest.is_some());
            if named || matches!(source, Source::File(_)) {
                return Ok(verified(fetched, Vec::new()));
            }
            return Err(refuse(
                "a [[trust]] rule for it, or a digest (sha256 = \"...\", oci://...@sha256:...)".to_owned(),
                format!("neither, and sha256 {}", fetched.sha256),
            ));
        };
        if rule.keys.is_empty() {
            return Ok(verified(fetched, Vec::new()));
        }
        let mut found = Vec::new();
        let mut signed_by = Vec::new();
        let mut wit_signed = false;
        for signature in &fetched.signatures {
            match checked(rule, source, signature, &fetched) {
                Ok(valid) => {
                    signed_by.push(valid.key_id);
                    wit_signed |= valid.is_over_wit;
                }
                Err(why) => found.push(why),
            }
        }
        if signed_by.is_empty() {
            let keys: Vec<_> =
                rule.keys.iter().map(|trusted| format!("{} ({})", trusted.key.id(), trusted.file.display())).collect();
            let expected = format!("a signature by key {} ([[trust]] source = {})", keys.join(" or "), rule.pattern);
            return Err(refuse(expected, if found.is_empty() { "none".to_owned() } else { found.join("; ") }));
        }
        let mut fetched = fetched;
        if !wit_signed && fetched.wit.take().is_some() {
            tracing::warn!(source = %source, "the WIT text that came with the component is not signed, so it is not used");
        }
        Ok(verified(fetched, signed_by))
    }

    /// Who keys are, as far as the rules have them now: a version may have been signed by one that none names any more.
    pub fn signers(&self, ids: &[String]) -> Vec<Signer> {
        let signer = |id: &String| {
            let has = |trusted: &&TrustedKey| trusted.key.id() == *id;
            let found = self.rules.iter().find_map(|rule| Some((rule, rule.keys.iter().find(has)?)));
            Signer {
                key: id.clone(),
                file: found.map(|(_, trusted)| trusted.file.clone()),
                rule: found.map(|(rule, _)| rule.pattern.to_string()),
            }
        };
        ids.iter().map(signer).collect()
    }

    /// Whether only signed components are taken from there. Which rule is for a file is known once it is open, and its
    /// signatures are read either way.
    pub fn requires_signature(&self, source: &Source) -> bool {
        self.rules.iter().find(|rule| rule.pattern.fits(source, None)).is_some_and(|rule| !rule.keys.is_empty())
    }
}

/// A signature that holds.
struct ValidSignature {
    key_id: String,
    /// Whether it is over the WIT text too.
    is_over_wit: bool,
}

/// A signature by a key of the rule, or what is wrong with it.
fn checked(rule: &Rule, source: &Source, signature: &Signature, fetched: &Fetched) -> Result<ValidSignature, String> {
    let mut keys = rule.keys.iter().map(|trusted| &trusted.key);
    match signature {
        Signature::Detached { key_id, component, wit, signature } => {
            let Some(key) = keys.find(|key| key.id() == *key_id) else {
                return Err(format!("a signature by key {key_id}"));
            };
            if !key.has_signed(message(*component, *wit).as_bytes(), signature) {
                return Err(format!("a signature by key {key_id} that is not valid"));
            }
            if *component != fetched.sha256 {
                let found = fetched.sha256;
                return Err(format!(
                    "a signature by key {key_id} of sha256 {component}, but a component of sha256 {found}"
                ));
            }
            let found = fetched.wit.as_ref().map(|text| Digest(Sha256::digest(text).into()));
            // That none came along is no harm: it is for descriptions.
            if let (Some(wit), Some(found)) = (wit, found)
                && *wit != found
            {
                return Err(format!("a signature by key {key_id} with a WIT text of sha256 {wit}, but one of {found}"));
            }
            Ok(ValidSignature { key_id: key_id.clone(), is_over_wit: wit.is_some() })
        }
        Signature::Cosign { manifest, payload, signature } => {
            let key = keys.find(|key| key.has_signed(payload, signature));
            let key = key.ok_or("a cosign signature by none of these keys")?;
            let repository = match source {
                Source::Oci(reference) if rule.same_repository => Some(reference),
                _ => None,
            };
            super::oci::names(payload, *manifest, repository)
                .map(|()| ValidSignature { key_id: key.id(), is_over_wit: false })
        }
        Signature::Unreadable(what) => Err(what.clone()),
    }
}

impl Verified {
    pub fn sha256(&self) -> Digest {
        self.fetched.sha256
    }

    /// Bytes of the component.
    pub fn size(&self) -> u64 {
        self.fetched.bytes.len() as u64
    }

    /// The source as it was resolved.
    pub fn origin(&self) -> &str {
        &self.fetched.origin
    }

    pub fn signed_by(&self) -> &[String] {
        &self.signed_by
    }

    /// One component of several that have passed. It comes from where the first one does; it is signed only if all are,
    /// and the strictest rule about definitions that change is the one for it.
    ///
    /// # Errors
    /// They do not fit together.
    pub(super) fn composed(parts: Vec<Self>) -> Result<Self, Error> {
        let names: Vec<_> = parts.iter().map(|part| part.source.to_string()).collect();
        let inputs: Vec<_> =
            parts.iter().zip(&names).map(|(part, name)| Part { name, bytes: &part.fetched.bytes }).collect();
        let refused = |problem: String| Error::NotComposed { what: names.join(" + "), problem };
        let bytes = compose(&inputs).map_err(|problems| refused(problems.join("; ")))?;
        drop(inputs);
        let signed_by = if parts.iter().all(|part| !part.signed_by.is_empty()) {
            let all: BTreeSet<_> = parts.iter().flat_map(|part| part.signed_by.iter().cloned()).collect();
            all.into_iter().collect()
        } else {
            Vec::new()
        };
        let changed_definitions = strictest(parts.iter().map(|part| part.changed_definitions));
        let shows_changes = parts.iter().any(|part| part.changed_definitions == Some(Pinning::Show));
        let origin = parts.iter().map(|part| part.fetched.origin.as_str()).collect::<Vec<_>>().join(" + ");
        let sha256 = Digest(Sha256::digest(&bytes).into());
        let Some(first) = parts.into_iter().next() else { return Err(refused("there are none".to_owned())) };
        let Fetched { file, wit, .. } = first.fetched;
        let fetched = Fetched { bytes, sha256, origin, file, signatures: Vec::new(), wit };
        Ok(Self { fetched, source: first.source, signed_by, changed_definitions, shows_changes })
    }

    /// What the plugins take, of a source that an operator named.
    pub fn candidate(self, name: Option<String>) -> Candidate {
        Candidate { is_attended: true, ..self.automatic_candidate(name) }
    }

    /// The same of a source that nobody named at this moment.
    pub fn automatic_candidate(self, name: Option<String>) -> Candidate {
        Candidate {
            is_attended: false,
            name,
            fallback_name: self.source.fallback_name(),
            bytes: Arc::from(self.fetched.bytes),
            // Whoever has signed the component without a text has it stand without one.
            wit: if self.signed_by.is_empty() { Wit::Free(self.fetched.wit) } else { Wit::Vouched(self.fetched.wit) },
            provenance: Provenance {
                source: self.source.to_string(),
                origin: self.fetched.origin,
                signed_by: self.signed_by,
                pinning: self.changed_definitions,
                shows_changes: self.shows_changes,
            },
        }
    }
}

/// Of several rules that have a say about one component. One that says nothing leaves it to the plugin's own
/// `accept_changes`, which no other rule may widen.
fn strictest(rules: impl Iterator<Item = Option<Pinning>> + Clone) -> Option<Pinning> {
    let says = |pinning| rules.clone().any(|rule| rule == pinning);
    [Some(Pinning::Hold), None, Some(Pinning::Show)]
        .into_iter()
        .find(|pinning| says(*pinning))
        .unwrap_or(Some(Pinning::Allow))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use bulkhead_sources::{SigningKey, signature};

    const SOURCE: &str = "https://acme.example/x.wasm";

    fn fetched(bytes: &[u8], signatures: &str) -> Fetched {
        let sha256 = Digest(Sha256::digest(bytes).into());
        let signatures = if signatures.is_empty() { Vec::new() } else { signature::parse(signatures.as_bytes()) };
        let bytes = bytes.to_vec();
        let origin = SOURCE.to_owned();
        let wit = Some("words".to_owned());
        Fetched { bytes, sha256, origin, file: None, signatures, wit }
    }

    fn trusted(key: &SigningKey) -> TrustedKey {
        TrustedKey { key: key.public(), file: "keys/acme.pem".into() }
    }

    fn trust(keys: &[&SigningKey]) -> Trust {
        let keys = keys.iter().map(|key| trusted(key)).collect();
        let pattern = "https://acme.example/**".parse().unwrap();
        Trust::new(vec![Rule { pattern, keys, same_repository: false, changed_definitions: Some(Pinning::Show) }])
    }

    fn refused(trust: &Trust, pinned: Option<Digest>, fetched: Fetched) -> String {
        trust.verify(&SOURCE.parse().unwrap(), pinned, fetched).unwrap_err().to_string()
    }

    #[test]
    fn component_needs_signature_of_a_required_key() {
        let acme = SigningKey::generate().unwrap().0;
        let other = SigningKey::generate().unwrap().0;
        let (rules, (acme_id, other_id)) = (trust(&[&acme]), (acme.public().id(), other.public().id()));
        let component = Digest(Sha256::digest("a").into());
        let wit = Digest(Sha256::digest("words").into());
        let good = acme.sign(component, None, Some(&other.sign(component, None, None)));
        let verified = rules.verify(&SOURCE.parse().unwrap(), None, fetched(b"a", &good)).unwrap();
        assert_eq!(verified.signed_by(), std::slice::from_ref(&acme_id));
        assert_eq!(verified.candidate(None).wit, Wit::Vouched(None), "words that nobody signed are not used");
        let good = acme.sign(component, Some(wit), None);
        let verified = rules.verify(&SOURCE.parse().unwrap(), None, fetched(b"a", &good)).unwrap();
        assert_eq!(verified.candidate(None).wit, Wit::Vouched(Some("words".to_owned())), "those that are signed are");
        let free = trust(&[]).verify(&SOURCE.parse().unwrap(), None, fetched(b"a", "")).unwrap().candidate(None);
        assert_eq!(free.wit, Wit::Free(Some("words".to_owned())));
        assert_eq!(free.provenance.pinning, Some(Pinning::Show), "as the rule says");

        let expected = format!("expected a signature by key {acme_id} (keys/acme.pem) ([[trust]] source = ");
        let swapped = good.replace(&component.to_string(), &wit.to_string());
        for (bytes, signatures, found) in [
            (&b"a"[..], String::new(), "found none".to_owned()),
            (b"a", other.sign(component, None, None), format!("found a signature by key {other_id}")),
            (b"b", good.clone(), format!("of sha256 {component}, but a component of")),
            (b"a", swapped, "that is not valid".to_owned()),
            (b"a", acme.sign(component, Some(component), None), "with a WIT text".to_owned()),
            (b"a", good.split_at(good.len() - 6).0.to_owned(), "a line that is no signature".to_owned()),
            (b"a", "\u{89}PGP".to_owned(), "does not begin with".to_owned()),
        ] {
            let refusal = refused(&rules, None, fetched(bytes, &signatures));
            assert!(refusal.contains(&expected) && refusal.contains(&found), "{refusal}");
        }
    }

    #[test]
    fn signers_have_the_file_and_the_rule_that_name_their_key_now() {
        let acme = SigningKey::generate().unwrap().0;
        let id = acme.public().id();
        let known = trust(&[&acme]).signers(&[id.clone(), "0123456789abcdef".to_owned()]);
        let rule = "\"https://acme.example/**\"".to_owned();
        let expected = [
            Signer { key: id.clone(), file: Some("keys/acme.pem".into()), rule: Some(rule) },
            Signer { key: "0123456789abcdef".to_owned(), file: None, rule: None },
        ];
        assert_eq!(known, expected);
        let words: Vec<_> = known.iter().map(ToString::to_string).collect();
        assert_eq!(words, [format!("acme.pem ({id})"), "0123456789abcdef".to_owned()]);
    }

    #[test]
    fn pinned_digest_is_checked_beside_signature() {
        let acme = SigningKey::generate().unwrap().0;
        let a = Digest(Sha256::digest("a").into());
        let b = Digest(Sha256::digest("b").into());
        let signed = || fetched(b"a", &acme.sign(a, None, None));
        let refusal = refused(&trust(&[&acme]), Some(b), signed());
        assert!(refusal.contains(&format!("expected sha256 {b}, found sha256 {a}")), "{refusal}");
        trust(&[&acme]).verify(&SOURCE.parse().unwrap(), Some(a), signed()).unwrap();
    }

    #[test]
    fn strictest_rule_of_composed_sources_counts() {
        use Pinning::{Allow, Hold, Show};
        for (rules, expected) in [
            (&[Some(Allow), Some(Allow)][..], Some(Allow)),
            (&[Some(Allow), Some(Show)], Some(Show)),
            (&[Some(Allow), None], None),
            (&[None, Some(Show), Some(Hold)], Some(Hold)),
        ] {
            assert_eq!(strictest(rules.iter().copied()), expected, "{rules:?}");
        }
    }

    #[test]
    fn composed_plugin_notes_changes_where_one_rule_of_its_parts_wants_it() {
        let part = |wat: &str, changed_definitions| {
            let bytes = wat::parse_str(wat).unwrap();
            let fetched = Fetched {
                sha256: Digest(Sha256::digest(&bytes).into()),
                bytes,
                origin: "here".to_owned(),
                file: None,
                signatures: Vec::new(),
                wit: None,
            };
            let source = Source::File("part.wasm".into());
            Verified { fetched, source, signed_by: Vec::new(), changed_definitions, shows_changes: false }
        };
        let main = r#"(component (import "a:b/c" (instance)) (instance $i) (export "a:b/main" (instance $i)))"#;
        let c = r#"(component (instance $i) (export "a:b/c" (instance $i)))"#;
        for (rule, shows) in [(Some(Pinning::Show), true), (Some(Pinning::Allow), false), (None, false)] {
            let whole = Verified::composed(vec![part(main, None), part(c, rule)]).unwrap();
            let provenance = whole.automatic_candidate(None).provenance;
            assert_eq!((provenance.pinning, provenance.shows_changes), (None, shows), "{rule:?}");
        }
    }

    #[test]
    fn network_source_needs_trust_rule_or_digest() {
        let nobody = Trust::default();
        assert!(refused(&nobody, None, fetched(b"a", "")).contains("expected a [[trust]] rule"));
        nobody.verify(&SOURCE.parse().unwrap(), Some(Digest(Sha256::digest("a").into())), fetched(b"a", "")).unwrap();
        let by_digest = format!("oci://ghcr.io/a/b@sha256:{}", "5".repeat(64));
        nobody.verify(&by_digest.parse().unwrap(), None, fetched(b"a", "")).unwrap();
        assert!(nobody.verify(&"oci://ghcr.io/a/b:1".parse().unwrap(), None, fetched(b"a", "")).is_err());
        nobody.verify(&"./a.wasm".parse().unwrap(), None, fetched(b"a", "")).unwrap();
        trust(&[]).verify(&SOURCE.parse().unwrap(), None, fetched(b"a", "")).unwrap();
    }

    fn fits_now(pattern: &Pattern, path: &Path) -> bool {
        pattern.fits(&Source::File(path.to_owned()), path.canonicalize().ok().as_deref())
    }

    #[tokio::test]
    async fn trust_rule_applies_to_the_file_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["strict", "free"] {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join("x.wasm"), name).unwrap();
        }
        let link = root.join("drop.wasm");
        let lead_to = |name: &str| {
            let draft = root.join("draft");
            std::os::unix::fs::symlink(root.join(name).join("x.wasm"), &draft).unwrap();
            std::fs::rename(draft, &link).unwrap();
        };
        let rule = |text: &str, keys: &[&SigningKey]| Rule {
            pattern: text.parse::<Pattern>().unwrap().from_folder(&root),
            keys: keys.iter().map(|key| trusted(key)).collect(),
            same_repository: false,
            changed_definitions: None,
        };
        let acme = SigningKey::generate().unwrap().0;
        let trust = Trust::new(vec![rule("./strict/**", &[&acme]), rule("./free/**", &[])]);
        let source = Source::File(link.clone());
        let fetching = super::super::watch::tests::fetching();
        for (read, then, expected) in [("strict", "free", false), ("free", "strict", true)] {
            lead_to(read);
            let fetched = super::super::fetch(&source, &fetching, true).await.unwrap();
            lead_to(then);
            assert_eq!(fetched.bytes, read.as_bytes());
            assert_eq!(trust.verify(&source, None, fetched).is_ok(), expected, "{read} was read");
        }
    }

    #[tokio::test]
    async fn fifo_or_directory_as_plugin_source_is_refused() {
        let fetching = super::super::watch::tests::fetching();
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.wasm");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for (path, why) in [(pipe, "is not a file"), (folder.path().to_owned(), "is not a file")] {
            let refused = super::super::fetch(&Source::File(path), &fetching, true).await.unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn trust_pattern_matches_file_by_link_and_real_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("free")).unwrap();
        std::fs::write(root.join("strict.wasm"), "a").unwrap();
        std::os::unix::fs::symlink(root.join("strict.wasm"), root.join("link.wasm")).unwrap();
        let pattern = |text: &str| text.parse::<Pattern>().unwrap().from_folder(&root);
        let fits = |pattern: &Pattern, path: &str| fits_now(pattern, &root.join(path));
        assert!(fits(&pattern("./*.wasm"), "strict.wasm") && fits(&pattern("./free/../strict.*"), "link.wasm"));
        assert!(!fits(&pattern("./free/**"), "free/../strict.wasm"), "that would be a way around a rule");
        assert!(fits(&pattern("./strict.wasm"), "free/../strict.wasm"));
    }

    #[test]
    fn trust_rule_of_linked_folder_covers_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("releases/1/in")).unwrap();
        std::fs::write(root.join("releases/1/in/a.wasm"), "a").unwrap();
        std::os::unix::fs::symlink(root.join("releases/1"), root.join("current")).unwrap();
        for (text, expected) in [
            ("./current/**", true),
            ("./current/in/*.wasm", true),
            ("./current/in/a.wasm", true),
            ("./current/*.wasm", false),
            ("./current/other/**", false),
        ] {
            let pattern = text.parse::<Pattern>().unwrap().from_folder(&root);
            for path in ["current/in/a.wasm", "releases/1/in/a.wasm", "current/../1/in/a.wasm"] {
                assert_eq!(fits_now(&pattern, &root.join(path)), expected, "{text} {path}");
            }
        }
        assert!(fits_now(&"/**".parse().unwrap(), &root.join("current/in/a.wasm")));
    }

    #[test]
    fn trust_rule_cannot_be_bypassed_by_address_spelling() {
        let acme = SigningKey::generate().unwrap().0;
        let digest = Digest(Sha256::digest("a").into());
        let rule = |text: &str| Rule {
            pattern: text.parse().unwrap(),
            keys: vec![trusted(&acme)],
            same_repository: false,
            changed_definitions: None,
        };
        for pattern in [
            "https://acme.example/tools/**",
            "https://ACME.example.:443/tools/**",
            "https://acme.example//tools/./**",
            "https://acme.example/%74ools/**",
        ] {
            let trust = Trust::new(vec![rule(pattern)]);
            for source in [
                "https://acme.example/tools/x.wasm",
                "https://acme.example./tools/x.wasm",
                "https://acme.example:443/tools/x.wasm",
                "https://ACME.example/tools/x.wasm",
                "https://acme.example//tools/x.wasm",
                "https://acme.example/tools//x.wasm",
                "https://acme.example/./tools/x.wasm",
                "https://acme.example/%74ools/x.wasm",
                "https://acme.example/t%6f%6Fls/x.wasm",
            ] {
                let refused = trust.verify(&source.parse().unwrap(), Some(digest), fetched(b"a", "")).map(drop);
                assert!(refused.is_err_and(|refusal| refusal.expected.contains("a signature")), "{pattern} {source}");
            }
            for other in [
                "https://acme.example/other/x.wasm",
                "https://acme.example:444/tools/x.wasm",
                "https://acme.example/Tools/x",
            ] {
                assert!(
                    trust.verify(&other.parse().unwrap(), Some(digest), fetched(b"a", "")).is_ok(),
                    "{pattern} {other}"
                );
            }
        }
        let trust = Trust::new(vec![rule("oci://ghcr.io/acme/**")]);
        for source in ["oci://ghcr.io/acme/csv:1", "oci://ghcr.io:443/acme/csv:1", "oci://ghcr.io./acme/csv:1"] {
            let refused = trust.verify(&source.parse().unwrap(), Some(digest), fetched(b"a", "")).map(drop);
            assert!(refused.is_err(), "{source}");
        }
    }
}
