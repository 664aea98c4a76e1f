//! Skills, read by what their entries say and by nothing else.

use crate::{Connection, Error};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use mcp_protocol::{
    client::Answer,
    model::{ClientRequest, Page, ResourceContents, SkillEntry},
};
use sha2::{Digest, Sha256};

impl Connection {
    /// The entries of all skills that the server lists. None of their files is fetched.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn skills(&self) -> Result<Vec<SkillEntry>, Error> {
        let ask = |cursor| ClientRequest::ListSkills(Page { cursor });
        self.all(ask, |answer| match answer {
            Answer::ListSkills(page) => Some((page.skills, page.next_cursor)),
            _ => None,
        })
        .await
    }

    /// The bytes of a file of a skill, after they were compared with the skill's entry: size and digest,
    /// and for `SKILL.md` the front matter.
    ///
    /// # Errors
    ///
    /// [`Error::Skill`] when the file is not what the entry says, or is not in it.
    pub async fn skill_file(&self, skill: &SkillEntry, uri: &str) -> Result<Vec<u8>, Error> {
        let unfit = |reason: String| Error::Skill {
            uri: uri.to_owned(),
            reason,
        };
        let told = skill.resources.iter().find(|it| it.uri == uri);
        if told.is_none() && !skill.resources.is_empty() {
            return Err(unfit("the entry does not name it".to_owned()));
        }
        let contents = self.read(uri).await?.contents;
        let [content] = contents.as_slice() else {
            return Err(unfit(format!("it has {} parts", contents.len())));
        };
        let bytes = bytes_of(content).ok_or_else(|| unfit("it is no base64".to_owned()))?;
        if let Some(told) = told {
            if bytes.len() as u64 != told.size {
                return Err(unfit(format!(
                    "{} bytes instead of {}",
                    bytes.len(),
                    told.size
                )));
            }
            let digest = HEXLOWER.encode(&Sha256::digest(&bytes));
            if told.digest != format!("sha256:{digest}") {
                return Err(unfit("its digest differs".to_owned()));
            }
        }
        if uri == skill.uri {
            let text = String::from_utf8(bytes.clone());
            let text = text.map_err(|_| unfit("it is no text".to_owned()))?;
            let read = adapter_skills::Frontmatter::parse(&text);
            let (read, _) = read.map_err(|error| unfit(error.to_string()))?;
            let told: serde_json::Value = skill
                .frontmatter
                .parse()
                .map_err(|_| unfit("the entry's front matter cannot be read".to_owned()))?;
            if serde_json::Value::Object(read.raw) != told {
                return Err(unfit("its front matter differs".to_owned()));
            }
        }
        Ok(bytes)
    }
}

fn bytes_of(content: &ResourceContents) -> Option<Vec<u8>> {
    match (&content.text, &content.blob) {
        (Some(text), _) => Some(text.clone().into_bytes()),
        (None, Some(blob)) => STANDARD.decode(blob).ok(),
        (None, None) => None,
    }
}
