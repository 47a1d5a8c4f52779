// One theme everywhere: the pages keep theirs in a cookie, Django's admin in localStorage. Runs before Django's script.
"use strict";
{
  const YEAR = 365 * 24 * 3600;
  const chosen = document.cookie.match(/(?:^|; )theme=(auto|light|dark)(?:;|$)/)?.[1];
  if (chosen) localStorage.setItem("theme", chosen);
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".theme-toggle")) return;
    document.cookie = `theme=${localStorage.getItem("theme")}; path=/; max-age=${YEAR}; SameSite=Lax`;
  });
}
