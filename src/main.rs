use std::process::ExitCode;

fn main() -> ExitCode {
    bearward::cli::run()
}
