//! `upstream.weights`: lists that do not fit the servers.

use super::check;

#[test]
fn each_server_has_one_weight() {
    let upstream = "[[upstream]]\nservers = [\"http://a:1\", \"http://b:1\"]\n";
    for (weights, key, column, says) in [
        ("[1]", "upstream[0].weights", 11, "1 weights for 2 servers"),
        ("[1, 2, 3]", "upstream[0].weights", 11, "one for each of `servers`"),
        ("[0, 0]", "upstream[0].weights", 11, "no server would get requests"),
        ("[1, 101]", "upstream[0].weights[1]", 15, "from 0 to 100"),
        ("[1, -1]", "upstream[0].weights[1]", 15, "from 0 to 100"),
        ("[1, 0.5]", "upstream[0].weights[1]", 15, "a whole number"),
        ("3", "upstream[0].weights", 11, "a list"),
    ] {
        check(&[(format!("{upstream}weights = {weights}").leak(), key, (3, column), says)]);
    }
    assert!(super::parse(&format!("{upstream}weights = [1, 0]")).is_ok());
    assert!(super::parse(&format!("{upstream}weights = []")).is_ok());
}
