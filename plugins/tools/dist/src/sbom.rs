//! The list of components of one program, as CycloneDX 1.6.

use serde_json::{Value, json};

use crate::components::{Component, Id};
use crate::release::{self, Program, Release};
use crate::tree::sha256;

/// Lists what is linked into a program.
pub(crate) fn document(release: &Release, program: &Program) -> anyhow::Result<Vec<u8>> {
    let digest = sha256(&program.bytes);
    let (own, others) = program.components.split_first().map_or((None, &[][..]), |(own, others)| (Some(own), others));
    let reference = own.map(|own| purl(&own.id)).unwrap_or_default();
    let components: Vec<_> = others.iter().map(component).collect();
    let dependencies: Vec<_> = program
        .components
        .iter()
        .map(|each| json!({ "ref": purl(&each.id), "dependsOn": each.depends.iter().map(purl).collect::<Vec<_>>() }))
        .collect();
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": serial_number(&digest),
        "version": 1,
        "metadata": {
            "timestamp": release.time()?,
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": program.name,
                "version": release.version,
                "licenses": [{ "license": { "id": release::LICENSE } }],
                "hashes": [{ "alg": "SHA-256", "content": digest }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

fn component(component: &Component) -> Value {
    let (name, version) = &component.id;
    let mut value = json!({
        "type": "library",
        "bom-ref": purl(&component.id),
        "name": name,
        "version": version,
        "scope": "required",
        "purl": purl(&component.id),
    });
    if let Some(license) = &component.license {
        // An older way to write `OR`.
        value["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(sha256) = &component.sha256 {
        value["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
    }
    value
}

fn purl((name, version): &Id) -> String {
    // The `+` of a version means something else in an URL.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// An UUID of version 8, made of the program's digest: the same program has the same list.
fn serial_number(digest: &str) -> String {
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!("urn:uuid:{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn component_carries_licence_digest_and_package_url() {
        let value = component(&Component {
            id: ("libz".to_owned(), "1.2.0+zlib".to_owned()),
            license: Some("MIT/Apache-2.0".to_owned()),
            sha256: Some("00ff".to_owned()),
            folder: "/".into(),
            depends: BTreeSet::new(),
        });
        assert_eq!(value["purl"], "pkg:cargo/libz@1.2.0%2Bzlib");
        assert_eq!(value["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(value["hashes"][0]["content"], "00ff");
    }

    #[test]
    fn serial_number_is_an_uuid_of_the_digest() {
        let digest = "0123456789abcdef".repeat(4);
        assert_eq!(serial_number(&digest), "urn:uuid:01234567-89ab-8def-8123-456789abcdef");
    }
}
