//! Files encrypted for recipients, in the [format of age](https://age-encryption.org/v1).
