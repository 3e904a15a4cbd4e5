//! Classes of characters, up to 255. Characters above are not kept: they matter only for clients that read UTF-8, and there nothing depends on them.

/// A set of the characters 0 to 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Class([u64; 4]);

impl Class {
    pub(super) fn add(&mut self, low: u32, high: u32) {
        for rune in low..=high.min(MAX) {
            if let Some(word) = self.0.get_mut(rune as usize / 64) {
                *word |= 1 << (rune % 64);
            }
        }
    }

    /// Adds a range with the other case of its letters.
    pub(super) fn add_folded(&mut self, low: u32, high: u32) {
        self.add(low, high);
        for rune in low..=high.min(MAX) {
            if let Some(letter) = u8::try_from(rune).ok().filter(u8::is_ascii_alphabetic) {
                let other = u32::from(letter ^ CASE_BIT);
                self.add(other, other);
            }
        }
    }

    pub(super) fn union(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    pub(super) fn negated(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    pub(super) fn has(self, rune: u32) -> bool {
        self.0.get(rune as usize / 64).is_some_and(|word| word >> (rune % 64) & 1 == 1)
    }

    pub(super) fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The ranges without gaps, in order.
    pub(super) fn ranges(self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for rune in (0..=MAX).filter(|rune| self.has(*rune)) {
            match ranges.last_mut() {
                Some((_, high)) if *high + 1 == rune => *high = rune,
                _ => ranges.push((rune, rune)),
            }
        }
        ranges
    }

    /// Returns `true` if it has both cases of each letter that it has.
    pub(super) fn ignores_case(self) -> bool {
        (b'a'..=b'z').all(|letter| self.has(letter.into()) == self.has((letter ^ CASE_BIT).into()))
    }
}

/// The class of `\d`, `\s` or `\w`, or the opposite by a capital letter.
pub(super) fn perl(letter: u32) -> Option<Class> {
    let name = match u8::try_from(letter).ok()?.to_ascii_lowercase() {
        b'd' => "digit",
        b'w' => "word",
        b's' => return Some(signed(of(&[(9, 10), (12, 13), (32, 32)]), letter)),
        _ => return None,
    };
    named(name).map(|class| signed(class, letter))
}

fn signed(class: Class, letter: u32) -> Class {
    if u8::try_from(letter).is_ok_and(|letter| letter.is_ascii_uppercase()) { class.negated() } else { class }
}

/// The class with a name such as `alpha`, as in `[:alpha:]`.
pub(super) fn named(name: &str) -> Option<Class> {
    let (_, ranges) = NAMED.iter().find(|(known, _)| *known == name)?;
    Some(of(ranges))
}

fn of(ranges: &[(u32, u32)]) -> Class {
    let mut class = Class::default();
    ranges.iter().for_each(|(low, high)| class.add(*low, *high));
    class
}

const MAX: u32 = 255;

const CASE_BIT: u8 = 0x20;

const NAMED: [(&str, &[(u32, u32)]); 14] = [
    ("alnum", &[(48, 57), (65, 90), (97, 122)]),
    ("alpha", &[(65, 90), (97, 122)]),
    ("ascii", &[(0, 127)]),
    ("blank", &[(9, 9), (32, 32)]),
    ("cntrl", &[(0, 31), (127, 127)]),
    ("digit", &[(48, 57)]),
    ("graph", &[(33, 126)]),
    ("lower", &[(97, 122)]),
    ("print", &[(32, 126)]),
    ("punct", &[(33, 47), (58, 64), (91, 96), (123, 126)]),
    ("space", &[(9, 13), (32, 32)]),
    ("upper", &[(65, 90)]),
    ("word", &[(48, 57), (65, 90), (95, 95), (97, 122)]),
    ("xdigit", &[(48, 57), (65, 70), (97, 102)]),
];

/// Returns `true` if RE2 knows `\p{name}`: a category or a script of Unicode.
pub(super) fn is_unicode_name(name: &str) -> bool {
    CATEGORIES.split(' ').chain(SCRIPTS.split(' ')).any(|known| known == name)
}

const CATEGORIES: &str = "Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs";

/// The scripts of Unicode 15.
const SCRIPTS: &str = "\
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali \
    Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian \
    Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret \
    Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian \
    Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo \
    Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian \
    Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi \
    Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic \
    Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive \
    Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari \
    New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic \
    Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya \
    Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic \
    Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo \
    Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut \
    Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Yi \
    Zanabazar_Square";
