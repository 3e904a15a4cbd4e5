//! Keys and signatures that openssl made, so that the code is not only compared with itself.

/// The claims that all of these signatures are of.
pub(crate) const CLAIMS: &str =
    r#"{"iss":"https://issuer.example","aud":"xds-server","sub":"alice","iat":1790000000,"exp":4102444800}"#;

/// The modulus of an RSA key of 2048 bits, of which the exponent is 65537.
pub(crate) const RSA_N: &str = "\
    wQRv8qYYAzvhMUr3pSJBVcNxg8_HO2GhjE00wL1dTSMmS6MhjI6xH-sjKhwj2Ajjxo2kHgRag_Huqvm5A16G5R8eXc5MsSLg53ZT\
    lPSm29gDy2h2sm_FIq5B4FDz9p5TEH5QMf8oABmWh6zKI7y-aW3AxdeJTrMc6glGtvY_qIBV5is6iD_QrFQj17BPlVKJo5qw-kGs\
    mAJu8tr5QAuqvfqhHeKY2Ichldf7hhDoU8R7XmScihf3Wq5pUXvGH6kG8rK_U-i8O2f9rnYZJyJGE9y8HfPhljNPv28LkcWuQpEI\
    ty6dYldbUKTsUAxVvnHl3JPWJMbJG1o1C1ntnXbtXQ";

/// The modulus of an RSA key of 1024 bits.
pub(crate) const WEAK_RSA_N: &str = "\
    tT_PzNtKXLkO1pB9Ca0bCPty_caSEBesf327fQ_AGk84Xvn5B5PpJkH-fhCXWJKF-khPYaZAgUvFPf_3pwx4CZqNYikfDi8uUCkJ\
    28C_qD1XZsmq8KGVXDE6qt_DXsam4xSEDq9c7qpRINU9YmkI0dLk_G9BcNPv8OxxMze0Eo8";

/// The signature of `{"alg":"RS256","kid":"rsa"}` and the claims.
pub(crate) const RS256: &str = "\
    sdUACqs1WzxrNrYqe1wivzV0HUaykHPt7q_jcspKjjaErUcxK731nyv6CCWRIFPKh-Jo2_WBVgwnyECNDdfPKMFYGXuxMG5hC0ka\
    TKpxa6Jqqh3wZDE--pPJx_nR0W2QYpRydsoIAXzMv2NBCMRtw9kIUzzoJplNe8neo-zI2_rlyJX3lR0PJxw88BGwIgbU_tXlTA9k\
    -NmXESB_ClbQtVnfR0hUTc8cjQ5daF84B_Kt-ii8HnsGzY-54CQ-cSRaIosKepVWCpsokpV1nFyVYglYPaZ44idhd75eYiUYqChJ\
    vPGUd5Ui2kQFFYK9HAXUeku6nI6yZwFYG8uuRn0Y7A";

/// The same with PS384.
pub(crate) const PS384: &str = "\
    jQBZLN_DeuVcZ5JLaIOzBmV7a1Q1OjMgcQN-hes5r_8GQbyAVxIrxfSop4iVAXcJwKlNnAD60isHHgqjMUGVvrMjFkpEOz_8xoaj\
    9kVERd-PcsnuN9cQ01GU6uHY7UCZmlwivdtNiLL4Yx-mb-fvywTQh4yothk3qZYQ7vgCqWG9adGX2j0GMuLVJ1Aidow5GGl7zetY\
    Z28k7bg0khwNoa8AsiOK9Id6pj75W0A2z6cZWnBI8y7_HSgNn7qOS9Y7X9mKyhdyokmo_bon04cSeAEU7A6Yd7-_CVprnhAKHF3l\
    1Yu4BYG8zwRbl9LvQLKgqywniAq8w6fK_PIfPbnI6g";

/// An Ed25519 key.
pub(crate) const ED25519_X: &str = "\
    FYeXQfkdyHDClH2vjcKFj7LdPclPXijYJA3JZJm02rU";

/// The signature of `{"alg":"EdDSA","kid":"ed"}` and the claims.
pub(crate) const EDDSA: &str = "\
    OK2mTnMhuH9tz79PEsSmMGlsC2DdXB8VaUoH7mYcn9sCSmhE63it9iz_m_I81aBjY_a7GUzeUgUWrQlpm7EnCA";

/// A P-384 key.
pub(crate) const P384_X: &str = "\
    ajj2KPBNBu5-I6ixe5ciFXs5pN-VUPZN2lud2OgPw7tk-GdVXLMlgvHVK4jsXYy0";

/// Its other coordinate.
pub(crate) const P384_Y: &str = "\
    s3U5VeJWFt0DMNu2tLHRyRO_Nqe50aNl_CSqisAyrAeWQtyaMQfH41I38lyF9UEA";

/// The signature of `{"alg":"ES384","kid":"p384"}` and the claims.
pub(crate) const ES384: &str = "\
    arr8UuikmTB-qBRvXsP4q6pzYQGzuvnRGhe24G4XuAN0mYGpkamF2DnMYCYQKYqDY2zdawL4XL7Q4_sDhWWDmDKn3UG8Vw8B9yJs\
    836kkfVM1eU0cdR1NKBCEJdvmdGi";
