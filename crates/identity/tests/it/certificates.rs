//! Names in client certificates.

use identity::{CertificateName, CertificateOptions, Certificates, Rejection};
use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};
use std::time::{Duration, SystemTime};

fn certificate(names: &[SanType], common: &[&str]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names.to_vec();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    params.distinguished_name = rcgen::DistinguishedName::new();
    for name in common {
        params.distinguished_name.push(DnType::CommonName, *name);
    }
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().to_vec()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

fn email(text: &str) -> SanType {
    SanType::Rfc822Name(text.try_into().unwrap())
}

fn rules(name: CertificateName) -> Certificates {
    Certificates::new(CertificateOptions {
        name,
        principal_prefix: "cert:".to_owned(),
        roles: vec![
            ("cert:spiffe://corp/*".to_owned(), vec!["service".into()]),
            (
                "*/billing".to_owned(),
                vec!["billing".into(), "service".into()],
            ),
        ],
    })
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

#[test]
fn the_name_that_counts_becomes_the_principal() {
    let names = [
        uri("spiffe://corp/billing"),
        dns("Billing.Corp.example"),
        email("b@corp.example"),
    ];
    let der = certificate(&names, &["billing"]);
    let rows = [
        (
            CertificateName::SanUri,
            "cert:spiffe://corp/billing",
            vec!["billing", "service"],
        ),
        (CertificateName::SanDns, "cert:billing.corp.example", vec![]),
        (CertificateName::SanEmail, "cert:b@corp.example", vec![]),
        (CertificateName::CommonName, "cert:billing", vec![]),
    ];
    for (name, principal, roles) in rows {
        let identity = rules(name).identify(&der, now()).unwrap();
        assert_eq!(&*identity.principal, principal);
        let found: Vec<&str> = identity.roles.iter().map(|it| &**it).collect();
        assert_eq!(found, roles);
    }
}

#[test]
fn none_and_several_names_are_nobody() {
    let rows = [
        (
            CertificateName::SanUri,
            certificate(&[dns("a.example")], &["a"]),
        ),
        (
            CertificateName::SanUri,
            certificate(&[uri("a:b"), uri("c:d")], &[]),
        ),
        (CertificateName::SanDns, certificate(&[], &["a.example"])),
        (
            CertificateName::SanDns,
            certificate(&[dns("a.example"), dns("b.example")], &[]),
        ),
        (
            CertificateName::CommonName,
            certificate(&[dns("a.example")], &[]),
        ),
    ];
    for (name, der) in rows {
        let outcome = rules(name).identify(&der, now());
        assert!(
            matches!(outcome, Err(Rejection::Invalid { .. })),
            "{outcome:?}"
        );
    }
    for rubbish in [&[][..], &[0x30, 0x82], &[0xff; 64]] {
        assert!(
            rules(CertificateName::SanUri)
                .identify(rubbish, now())
                .is_err()
        );
    }
}

#[test]
fn a_certificate_that_ends_while_it_is_connected_ends() {
    let der = certificate(&[uri("a:b")], &[]);
    let rules = rules(CertificateName::SanUri);
    let end = rules.identify(&der, now()).unwrap().expires.unwrap();
    assert!(rules.identify(&der, end - Duration::from_secs(1)).is_ok());
    assert!(rules.identify(&der, end).is_err());
    assert!(rules.identify(&der, SystemTime::UNIX_EPOCH).is_err());
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    assert!(rules.identify(&der, begin).is_ok());
    assert!(
        rules
            .identify(&der, begin - Duration::from_secs(1))
            .is_err()
    );
}

#[test]
fn a_name_that_cannot_be_a_principals_is_nobody() {
    let rules = rules(CertificateName::CommonName);
    let outcome = |name: &str| rules.identify(&certificate(&[], &[name]), now());
    for name in ["", " ana", "an\u{202e}a", "ana\n"] {
        let outcome = outcome(name);
        assert!(
            matches!(outcome, Err(Rejection::Invalid { .. })),
            "{name:?}: {outcome:?}"
        );
    }
    // With its prefix it has as many bytes as a principal's name may have, and one more.
    let longest = "x".repeat(256 - "cert:".len());
    assert!(outcome(&longest).is_ok());
    assert!(outcome(&format!("{longest}x")).is_err());
}
