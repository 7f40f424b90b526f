// Joins the parts of the page. The only module that knows them all.

import { startAnnouncer } from './announcer.js';
import { startAsking } from './asking.js';
import { startBanner } from './banner.js';
import { startComposer } from './composer.js';
import { startCost } from './cost.js';
import { startConversation } from './conversation.js';
import { startHealth } from './health.js';
import { startHistory } from './history.js';
import { startI18n } from './i18n.js';
import { startIntake } from './intake.js';
import { startKeeping } from './keeping.js';
import { startKeyhole } from './keyhole.js';
import { startOffline } from './offline.js';
import { startOptions } from './options.js';
import { startPace } from './pace.js';
import { startPdfPages } from './pdf-pages.js';
import { startPictures } from './pictures.js';
import { startSettings } from './settings.js';
import { startStorage } from './storage.js';
import { startTray } from './tray.js';
import { startZoom } from './zoom.js';

startI18n();
startSettings();
startOptions();
startPictures();
startTray();
startPace();
startCost();
startZoom();
startConversation();
startAnnouncer();
startBanner();
startKeyhole();
startComposer();
startPdfPages();
startIntake();
startHistory();
startStorage();
await startKeeping(); // a running answer must be known before the connection is there
startAsking();
startHealth();
startOffline();
