//! `certificates`: when the certificates of the server's ports end.

use serde_json::Value;

use super::connection::AdminArgs;
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_list};

/// The flags of `certificates`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CertificatesArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Exit code 1 if one has ended.
pub(crate) fn certificates(args: &CertificatesArgs) -> Result<(), Failure> {
    let found = args.admin.connect()?.get("/v1/certificates")?;
    print_list(args.admin.output, &found, || list(&found))?;
    let n_ended = items(&found["certificates"]).filter(|one| one["ended"] == true).count();
    match n_ended {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} of them have ended"))),
    }
}

fn list(found: &Value) -> Table {
    let mut table = Table::new(&["PORT", "PART", "ENDS", "ENDED"]).named_by(2);
    if items(&found["certificates"]).next().is_none() {
        return table.noted("no port of this server uses TLS\n".to_owned());
    }
    for one in items(&found["certificates"]) {
        let ended = if one["ended"] == true { "yes" } else { "" };
        let [port, part, ends] = ["port", "part", "ends"].map(|key| cell(&one[key]));
        table.push(vec![port, part, ends, ended.to_owned()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_ends_is_one_row() {
        let found = json!({"certificates": [
            {"port": "xds", "part": "leaf", "ends": "T1", "ended": true},
            {"port": "admin", "part": "client_ca", "ends": "T2", "ended": false},
        ]});
        assert_eq!(
            list(&found).render(),
            "PORT   PART       ENDS  ENDED\nxds    leaf       T1    yes\nadmin  client_ca  T2\n"
        );
        assert!(list(&json!({"certificates": []})).render().contains("no port"));
    }
}
