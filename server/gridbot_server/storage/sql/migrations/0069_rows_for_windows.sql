-- Programs for several platforms were signed for BOINC clients without the rows for Windows, which
-- count now: such a BOT is signed anew.
UPDATE bot SET boinc = NULL, policy_version = policy_version + 1,
       boinc_unsuitable = 'it was signed without its row for Windows: gridbot app sign signs it with that'
 WHERE boinc IS NOT NULL AND boinc NOT LIKE '%base64:%'
   AND manifest ~ '"where": ?"windows-' AND manifest !~ '"boinc_api": ?true';
