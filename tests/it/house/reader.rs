//! The reader of the source code.

use crate::support::source::{without_tests, words};

#[test]
fn the_reader_sees_code_and_neither_comments_literals_nor_tests() {
    let source = r##"
        use crate::a; // use crate::b;
        /* crate::c */ const D: &str = "crate::d \" crate::e";
        fn f<'a>(g: &'a u8) -> char { '"' }
        const H: &[u8] = br#"crate::h "quoted" "#; const I: char = '\'';
        #[cfg(test)]
        mod tests { use crate::j; fn k() {} }
        #[cfg(test)] use crate::l;
        fn m() { crate::n() }
    "##;
    let seen = without_tests(words(source)).join(" ");
    assert_eq!(
        seen,
        "use crate :: a ; const D : & str = ; fn f < ' a > ( g : & ' a u8 ) - > char { } \
         const H : & [ u8 ] = ; const I : char = ; fn m ( ) { crate :: n ( ) }"
    );
}
